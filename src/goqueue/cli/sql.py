"""`goqueue sql`: a query over topics, run by Spark in this process."""

from __future__ import annotations

import base64
import contextlib
import datetime
import decimal
import logging
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.options import AddressOption, OutputOption, output_format, resolve_address, root_defaults
from goqueue.cli.output import OutputFormat, show_rows
from goqueue.client import SyncClient
from goqueue.errors import ConfigurationError, InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_DEFAULT = 100


def sql(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Topics are tables of the same name.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many rows to print at most.")] = _ROWS_DEFAULT,
    path: Annotated[
        str | None, typer.Option("--path", metavar="DIR", help="Read this data directory; no broker is needed.")
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="Spark master. [env: GOQUEUE_SPARK_MASTER]")] = None,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """Query topics with SQL: columns key, value (as text where they are text), topic, partition, offset, timestamp,
    priority, headers."""
    spark_module = load_spark()
    form = output_format(ctx, output)
    if path is None:
        where = {"bootstrap": resolve_address(root_defaults(ctx), address)}
        with SyncClient(where["bootstrap"]) as client:
            names = [info["name"] for info in client.list_topics()]
    else:
        where, names = {"path": path}, topics_in(path)
    with quiet_stderr():
        spark = spark_module.session(master=master)
    try:
        for name in tables_of(query, names):
            view = spark_module.topic(name, spark=spark, includeHeaders="true", **where)
            view.createOrReplaceTempView(f"`{name}`")
        found = run(spark, query, rows)
    finally:
        spark.stop()
    columns = list(found[0].asDict()) if found else []
    show_rows(
        [{name: shown(value) for name, value in row.asDict().items()} for row in found],
        {name: name.upper() for name in columns},
        form,
    )
    if form is OutputFormat.TABLE and len(found) == rows:
        print(f"the first {rows} rows; --rows N shows more", file=sys.stderr)


def load_spark() -> Any:
    try:
        import goqueue_spark
    except ImportError:
        raise ConfigurationError("this needs Spark: pip install 'goqueue[spark]'") from None
    return goqueue_spark


def topics_in(path: str) -> list[str]:
    from goqueue_spark.layout import DirectoryCatalog

    return DirectoryCatalog(path).topics()


def tables_of(query: str, topics: list[str]) -> list[str]:
    """The topics whose names occur in the query; a view of every topic would cost a call for each."""
    words = set(re.findall(r"[A-Za-z0-9._-]+", query))
    return [name for name in topics if name in words]


def run(spark: SparkSession, query: str, rows: int) -> list[Any]:
    from pyspark.errors import PySparkException

    # PySpark logs a failed query with Java's stack; ours is the line that the user can act on.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    try:
        return spark.sql(query).limit(rows).collect()
    except PySparkException as error:
        # The first line says what is wrong; what follows is Spark's plan and Java's stack.
        text = next((line for line in str(error).splitlines() if line.strip()), "the query failed")
        cause = re.search(r"goqueue\.errors\.\w+: (.*)", str(error))
        raise InvalidRequestError(cause[1] if cause else text) from None


def shown(value: object) -> object:
    """A value of Spark as JSON and people take it."""
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return f"base64:{base64.b64encode(value).decode()}"
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, tuple) and hasattr(value, "asDict"):
        return {name: shown(item) for name, item in value.asDict().items()}
    return value


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Java greets with warnings that mean nothing to somebody with a query."""
    if os.environ.get("GOQUEUE_DEBUG"):
        yield
        return
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
