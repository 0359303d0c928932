"""The default store: plain files in a directory."""
