"""Files of wheels that no program of an image opens unless something names them: the rules as data.

A rule says which paths it is about and what a file contains that may open them: a library's name in an ELF file (the
dynamic section's NEEDED entries and the arguments of dlopen are both strings in the file), a function of the library
that a program may look up with dlsym, or a spelling in source code. NVIDIA's own runtime images
(`nvidia/cuda:*-runtime`) hold no headers and no static archives, so a training image does not need those either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADER_USERS = rb"\bnvrtc\b|\bnvcc\b|\bCUDA_HOME\b|nvidia[./][\w./]*include"

_TENSORFLOW = (
    *("tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-gpu", "tensorflow-tpu"),
    *("tensorflow-estimator", "keras"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimRule:
    """One kind of file that is left out when nothing names it.

    Attributes:
        name: how the lock and messages call it.
        paths: matches a path below site-packages from its start; what it matches is left out as a whole.
        words: an ELF file with one of them may open the files.
        calls: a function of the library: an ELF file that has its name may look it up.
        inside: of the library's own text: an ELF file that has it, and `calls`, is linked with the library statically.
        source: matches source code that may open the files.
        owners: the packages whose own mention of the files does not count; a hyphen at the end stands for any name.
    """

    name: str
    paths: re.Pattern[str]
    words: tuple[bytes, ...] = ()
    calls: bytes = b""
    inside: bytes = b""
    source: re.Pattern[bytes]
    owners: tuple[str, ...] = ()

    def is_named_by(self, tokens: frozenset[bytes]) -> bool:
        """Whether an ELF file with exactly these of the rules' tokens may open the files."""
        if tokens.intersection(self.words):
            return True
        return bool(self.calls) and self.calls in tokens and (not self.inside or self.inside not in tokens)


def _library(package: str, library: str, *, word: bytes = b"", calls: bytes = b"", inside: bytes = b"") -> TrimRule:
    """A shared library of one of NVIDIA's packages."""
    name = re.escape(library.encode())
    found_as = rb"find_library\(\s*[\"']" + re.escape(library.removeprefix("lib").encode())
    own = rb"nvidia[./]" + package.encode() + rb"\b"
    alone = library.removeprefix("lib") == package  # importing the package is naming the library
    return TrimRule(
        name=library.removeprefix("lib"),
        paths=re.compile(rf"nvidia/{package}/lib/{library}\.so[.\d]*\Z"),
        words=(word or library.encode(),),
        calls=calls,
        inside=inside,
        source=re.compile(b"|".join((name, found_as, own) if alone else (name, found_as))),
    )


TRIM_RULES = (
    # libnccl-net-NAME.so is a plug-in of NCCL's own; TensorFlow up to 2.17 holds NCCL's code, and with it this name.
    _library("nccl", "libnccl", word=b"libnccl.so", calls=b"ncclCommInit", inside=b"libnccl-net"),
    _library("curand", "libcurand", calls=b"curandCreateGenerator"),
    _library("cusolver", "libcusolverMg", calls=b"cusolverMgCreate"),
    _library("cublas", "libnvblas"),
    _library("cufft", "libcufftw"),
    TrimRule(
        name="libclang",  # TensorFlow requires the package, for a script of its own build
        paths=re.compile(r"clang(?=/)"),
        words=(b"libclang",),
        source=re.compile(rb"libclang[.\"']|\b(?:import|from)\s+clang\b|\bclang\.cindex\b"),
        owners=("libclang",),
    ),
    TrimRule(
        name="headers of TensorFlow",
        paths=re.compile(r"tensorflow/include(?=/)"),
        source=re.compile(rb"\bsysconfig\.get_include\b|\bget_compile_flags\b|tensorflow/include"),
        owners=_TENSORFLOW,
    ),
    TrimRule(
        name="headers of CUDA",
        paths=re.compile(r"nvidia/(?:\w+/)+?include(?=/)|nvidia/[\w./+-]+\.a\Z"),
        words=(b"libnvrtc", b"nvrtcCompileProgram"),
        source=re.compile(_HEADER_USERS),
        owners=("nvidia-", *_TENSORFLOW),
    ),
)

TOKENS = tuple(sorted({token for rule in TRIM_RULES for token in (*rule.words, rule.calls, rule.inside) if token}))
"""What is looked for in ELF files."""


_HINTS = (
    *(b"nccl", b"curand", b"cusolverMg", b"nvblas", b"cufftw", b"clang"),
    *(
        b"sysconfig.get_include",
        b"get_compile_flags",
        b"tensorflow/include",
        b"nvrtc",
        b"nvcc",
        b"CUDA_HOME",
        b"nvidia",
    ),
)  # source code that matches a rule contains one of them; looking for them is much faster than the patterns


def rule_of(path: str) -> tuple[TrimRule, str] | None:
    """The rule about a path below site-packages, and the path that is left out as a whole; None without a rule."""
    for rule in TRIM_RULES:
        match = rule.paths.match(path)
        if match:
            return rule, match.group()
    return None


def named_in_elf(tokens: frozenset[bytes]) -> frozenset[str]:
    """The names of the rules whose files an ELF file with exactly these tokens may open."""
    return frozenset(rule.name for rule in TRIM_RULES if rule.is_named_by(tokens))


def named_in_source(text: bytes) -> frozenset[str]:
    """The names of the rules whose files source code names."""
    if not any(hint in text for hint in _HINTS):
        return frozenset()
    return frozenset(rule.name for rule in TRIM_RULES if rule.source.search(text))


def owned_by(package: str) -> frozenset[str]:
    """The names of the rules that a package's own files do not break."""
    return frozenset(
        rule.name
        for rule in TRIM_RULES
        if any(package == owner or (owner[-1] == "-" and package.startswith(owner)) for owner in rule.owners)
    )
