"""What people do with stores: fork, export, import, begin anew."""
