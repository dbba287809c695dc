"""Tables that people bring: rows of persons, read and brought to one scale by what is public, never by the data."""
