"""Whisper-style speech recognition, from one window to long and live recordings."""
