"""What a user asks for: speech recognition, looking at images, speech. One room each, alike."""
