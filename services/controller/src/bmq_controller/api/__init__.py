"""The admin REST API: `front` is what a process serves, `app` the pages behind it (imported when the first of them is
asked for).
"""
