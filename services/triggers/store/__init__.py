"""Tables, statements, migrations."""
