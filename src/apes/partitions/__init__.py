"""People of a table that does not fit into memory: in many Parquet files, read by the worker that needs them."""
