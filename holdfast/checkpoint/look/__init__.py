"""What people look at: epochs as data, tables of state, differences, damage."""
