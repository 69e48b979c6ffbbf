"""Arguments of `k spark-submit`: those for Spark's own spark-submit, and reasons to refuse them.

Pure: words, configs and an environment in, words and an environment out.

    k spark-submit [OUR OPTIONS] [SPARK'S OPTIONS] APP [WORDS]      APP is a file, or a job's name

Executors find this package:

    at the same path as here        spark://, yarn: PYTHONPATH is set for them if needed
    in their image                  k8s://
    in an archive of an environment --archives, and PYSPARK_PYTHON names its Python
    in a zip                        --ship
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

WITH_DEFAULTS = "--load-spark-defaults"
FLAGS = frozenset(
    {
        "--supervise",
        "--verbose",
        "-v",
        "--help",
        "-h",
        "--version",
        "--usage-error",
        WITH_DEFAULTS,
    }
)
"""The options of spark-submit that take no value."""
WITHOUT_APPLICATION = frozenset({"--status", "--kill", "--help", "-h", "--version"})
PYTHON_SUFFIXES = (".py", ".zip", ".egg", ".pyc")

DEFAULTS = {
    # Push filters into the read: only the needed partitions and offsets are fetched.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Data between Spark and Python takes a fifth less time.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Defaults of Spark's configs."""
IMAGE = "spark.kubernetes.container.image"
IMAGES = ("spark.kubernetes.driver.container.image", "spark.kubernetes.executor.container.image")
UPLOAD = "spark.kubernetes.file.upload.path"

_MASTERS = re.compile(r"(local)(?:\[.*\])?|(local-cluster)\[.*\]|(spark)://.+|(yarn)|(k8s)://.+")


def own_first(words: Sequence[str], own: Container[str]) -> tuple[list[str], list[str]]:
    """Split leading options into `own`, which may stand among those of Spark, and all other
    words.
    """
    own_words: list[str] = []
    rest: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] in own:
            own_words.append(words[at])
            at += 1
            continue
        name, equals, _ = words[at].partition("=")
        end = at + (1 if equals or name in FLAGS else 2)
        rest += words[at:end]
        at = end
    return own_words, [*rest, *words[at:]]


@dataclass(frozen=True)
class Submission:
    """The parsed words of spark-submit: options before the application, and all words after it."""

    options: Mapping[str, str]
    """By name; the last one of repeated options."""
    application: str | None
    before: tuple[str, ...] = ()
    """The words of the options."""
    words: tuple[str, ...] = ()
    """The words after the application."""
    job: str | None = None
    """The application, if it is the name of a job."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Configs of --conf, and below them those of the files that Spark reads."""

    @classmethod
    def of(cls, words: Sequence[str], jobs: Container[str] = ()) -> Submission:
        options: dict[str, str] = {}
        settings: dict[str, str] = {}
        at = 0
        while at < len(words):
            name, equals, value = words[at].partition("=")
            if not name.startswith("-"):
                break
            at += 1
            if not equals and name not in FLAGS and at < len(words):
                value = words[at]
                at += 1
            options[name] = value
            if name in ("--conf", "-c"):
                key, _, text = value.partition("=")
                settings[key] = text
        application = words[at] if at < len(words) else None
        return cls(
            options,
            application,
            before=tuple(words[:at]),
            words=tuple(words[at + 1 :]),
            job=application if application is not None and application in jobs else None,
            settings=settings,
        )

    def over(self, properties: Mapping[str, str]) -> Submission:
        """Return the same with configs of a file as defaults."""
        return replace(self, settings={**properties, **self.settings})

    @property
    def properties_file(self) -> str | None:
        return self.options.get("--properties-file")

    @property
    def master(self) -> str:
        """The master; Spark's own default is all cores of this machine."""
        return self.options.get("--master") or self.settings.get("spark.master") or "local[*]"

    @property
    def kind(self) -> str:
        """local, local-cluster, spark, yarn or k8s; "" if Spark does not know it."""
        match = _MASTERS.fullmatch(self.master)
        return next(filter(None, match.groups())) if match else ""

    @property
    def runs_driver_here(self) -> bool:
        mode = self.options.get("--deploy-mode") or self.settings.get("spark.submit.deployMode")
        return mode != "cluster"

    @property
    def is_python(self) -> bool:
        if self.job is not None:
            return True
        return self.application is not None and self.application.endswith(PYTHON_SUFFIXES)

    @property
    def local_file(self) -> str | None:
        """The path of the application if it is a file of this machine."""
        if self.application is None or self.job is not None:
            return None
        scheme, _, rest = self.application.rpartition(":")
        if not scheme:
            return self.application
        return rest.removeprefix("//") if scheme == "file" else None

    def refusal(self, environment: Mapping[str, str]) -> str | None:
        """Return why Spark would refuse it, later and less clearly; None if it would not."""
        if self.job is not None and "--remote" in self.options:
            return "a job runs its own driver; give --master instead of --remote"
        if "--remote" in self.options:
            return None
        match self.kind:
            case "":
                return (
                    f"--master {self.master} is not a master URL of Spark; give local[N],"
                    " spark://HOST:PORT, yarn or k8s://HOST:PORT"
                )
            case "spark" if self.is_python and not self.runs_driver_here:
                return (
                    "a standalone cluster does not run the driver of a Python application: leave"
                    " out --deploy-mode cluster, so that the driver runs here"
                )
            case "yarn" if not ({"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & environment.keys()):
                return "HADOOP_CONF_DIR is not set; set it to the directory of yarn-site.xml"
            case "k8s":
                return self._refusal_of_kubernetes()
        return None

    def _refusal_of_kubernetes(self) -> str | None:
        if IMAGE not in self.settings and not set(IMAGES) <= self.settings.keys():
            return (
                f"Kubernetes requires an image; give --conf {IMAGE}=IMAGE, with Spark, Python and"
                " k-kafka[spark] in it"
            )
        is_local = self.job is not None or self.local_file is not None
        if not self.runs_driver_here and is_local and UPLOAD not in self.settings:
            return (
                "the driver runs in a pod, which cannot read files of this machine; give --conf"
                f" {UPLOAD}=DIRECTORY, which both can access, or leave out --deploy-mode cluster"
            )
        return None

    def command(
        self, *, runner: str, sources: str | None = None, shipped: str | None = None
    ) -> list[str]:
        """Return the words for spark-submit: `runner` is the program that runs a job, `sources` the
        directory of this package if Python does not find it by itself, `shipped` a zip of it.
        """
        options = [
            word
            for key, text in {**DEFAULTS, **self._of_executors(sources)}.items()
            if key not in self.settings
            for word in ("--conf", f"{key}={text}")
        ]
        if self.job is not None and not (
            {"--name", "spark.app.name"} & {*self.options, *self.settings}
        ):
            options += ["--name", f"k {self.job}"]
        after = []
        if shipped is not None:
            theirs = self.options.get("--py-files") or self.settings.get("spark.submit.pyFiles")
            after = ["--py-files", f"{shipped},{theirs}" if theirs else shipped]
        if self.job is not None:
            application = [runner, self.job]
        else:
            application = [] if self.application is None else [self.application]
        return [*options, *self.before, *after, *application, *self.words]

    def _of_executors(self, sources: str | None) -> dict[str, str]:
        """Return configs by which processes with another environment find this package."""
        if sources is None or self.kind not in ("local-cluster", "spark", "yarn"):
            return {}
        configs = {"spark.executorEnv.PYTHONPATH": sources}
        if self.kind == "yarn" and not self.runs_driver_here:
            configs["spark.yarn.appMasterEnv.PYTHONPATH"] = sources
        return configs


def environment(
    before: Mapping[str, str], *, spark_home: str, python: str, sources: str | None
) -> dict[str, str]:
    """Return variables for Spark: this environment's PySpark, this Python for driver and workers,
    and `sources`, the directory with `pyspark_k` if that is not next to PySpark. A Python that is
    set already is kept: on a cluster its path may differ.
    """
    variables = {
        "SPARK_HOME": spark_home,
        "PYSPARK_PYTHON": before.get("PYSPARK_PYTHON") or python,
        "PYSPARK_DRIVER_PYTHON": before.get("PYSPARK_DRIVER_PYTHON") or python,
    }
    if sources is not None:
        paths = [path for path in before.get("PYTHONPATH", "").split(":") if path]
        variables["PYTHONPATH"] = ":".join(dict.fromkeys([sources, *paths]))
    return variables


def adjusted(
    variables: Mapping[str, str], before: Mapping[str, str], submission: Submission, logging: str
) -> dict[str, str]:
    """Adapt that environment to one submission: a pod has its own Python, and with a job Spark logs
    only errors, by the file `logging`, unless logging is configured.
    """
    result = dict(variables)
    if submission.kind == "k8s" and not before.get("PYSPARK_PYTHON"):
        result["PYSPARK_PYTHON"] = "python3"
        if not submission.runs_driver_here:
            result["PYSPARK_DRIVER_PYTHON"] = "python3"
    java = before.get("SPARK_SUBMIT_OPTS", "")
    if submission.job is not None and "log4j" not in java and "SPARK_CONF_DIR" not in before:
        result["SPARK_SUBMIT_OPTS"] = f'{java} "-Dlog4j2.configurationFile={logging}"'.strip()
    return result
