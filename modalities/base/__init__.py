"""What adapters of every modality share: decoders, families, preparation, requests, drafters."""
