"""Text as rows: typed values of fields and lines, headers of csv files."""
