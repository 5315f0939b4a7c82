"""The result of a job, and the page that shows it.

``findings.py`` has the parts that a job returns; ``drawing.py`` makes charts of them, ``page.py`` an HTML
page that loads nothing else, and ``files.py`` writes all of it into a folder.  Nothing here needs Spark.
"""
