"""Tables of databases as a sink: staged by tasks, moved in one transaction together with a row of a ledger."""
