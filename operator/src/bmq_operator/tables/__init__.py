"""Tables from topics: Spark's applications for Topics with `parquet` and for ParquetSinks (decision 35)."""
