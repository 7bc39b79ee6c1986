"""Looking: images and documents become captions, readings, answers."""
