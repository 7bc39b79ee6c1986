"""Speech: texts become codes and sound."""
