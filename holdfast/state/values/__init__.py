"""Python values as bytes and back, exactly: types, codes, comparison."""
