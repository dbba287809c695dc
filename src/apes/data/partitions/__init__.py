"""Tables in many Parquet files, each of whole people: read piece by piece, by whoever needs which."""
