"""What can go wrong between the kernel and Spark; each text says what to do."""

from __future__ import annotations

from kernel.contracts.errors import KernelError


class NoSpark(KernelError):
    """pyspark is not installed."""


class NoJava(KernelError):
    """Spark needs a Java that this machine has not, and no wheel brings one."""


class NoArchive(KernelError):
    """This machine's Java keeps no archive of Spark's classes; everything works without, and starts slower."""


class SparkOptionError(KernelError):
    """An option of the data source, or of a job, is not one or has no such value."""


class RowError(KernelError):
    """A row cannot become a message; the text says which row, in which column."""


class DataLost(KernelError):
    """Offsets that a query is still to read are no longer in the journal."""


class NotTaken(KernelError):
    """A running kernel did not confirm what was sent to it."""
