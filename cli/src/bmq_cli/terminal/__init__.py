"""What commands write and read at a terminal: tables and documents, records' formats, times, sizes, completion, exit
codes.
"""
