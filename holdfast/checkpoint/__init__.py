"""Where state meets store: blobs, the manifest of an epoch, retention."""
