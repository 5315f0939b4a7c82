"""Errors between the kernel and Spark; each text says what to do."""

from __future__ import annotations

from kernel.contracts.errors import KernelError


class NoSpark(KernelError):
    """pyspark is not installed, or its version is not supported."""


class NoJava(KernelError):
    """There is no Java that Spark can use, neither of the system nor as a wheel."""


class NoArchive(KernelError):
    """This Java cannot create an archive of Spark's classes.

    Everything works without it, but starts more slowly.
    """


class SparkOptionError(KernelError):
    """An option of the data source or of a job is unknown or has an invalid value."""


class RowError(KernelError):
    """A row cannot be converted into a message; the text names the row and the column."""


class DataLost(KernelError):
    """Rows that a query has not read yet are no longer in the journal."""


class NotTaken(KernelError):
    """A running kernel did not confirm, or refused, messages that were sent to it."""
