"""Files and arrays in: sound, images, documents."""
