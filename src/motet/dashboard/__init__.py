"""A live, read-only web page of all runs in a folder. It needs starlette and uvicorn: `motet[dashboard]`."""
