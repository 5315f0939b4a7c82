"""What a job found out, and the page that shows it.

``findings.py`` has the parts that a job returns; ``drawing.py`` makes charts of them, ``page.py`` a page that
needs nothing but itself, and ``files.py`` puts it all into a folder.  Nothing here knows Spark.
"""
