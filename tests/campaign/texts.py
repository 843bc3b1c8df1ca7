"""Random Dockerfile text: COPY in all its forms, settings, variables, and the syntax around them."""

from __future__ import annotations

import json
import random

from tests.campaign.bases import FOLDERS

_SOURCES = (
    "a.txt", "b.txt", "run.sh", "d", "d/", "d/sub", "e", "f", "g", "h", "link-file", "link-dir", "link-dir/x.txt",
    "d/inner", "*.txt", "d/*", "?.txt", "link-*", "a.txt b.txt", "d f", "a.txt d", "d/x.txt run.sh", "g/x.txt", "d/s*",
    "a.txt", "d", "link-dir", ".", "[ab].txt", "./d/../a.txt",
)  # fmt: skip
_WIDE_SOURCES = (
    "w", "w/*", "w/.dot", ".dot", ".*", "*", "./", "/", "./.", "w/two*", "w/ünï", "w/[[]x].txt", "w/[x].txt",
    "w/\\[x].txt", "w/c,d=e", "w/q\\$A.txt", "w/q$A.txt", "w/'q$A.txt'", "'w/q$A.txt'", '"a.txt"', "w/-dash",
    "w/#hash", "w/empty", "w/_", "w/deep", f"w/{'n' * 120}", "w/n*", "A.TXT", "[A-Z].TXT", "[^a].txt", "[!a].txt",
    "w/gone", "w/up", "w/up/a.txt", "w/chain", "link-link", "w/hard", "w/harder w/hard", "w/x.tar", "$B",
    "${B:-a.txt}", "${B-a.txt}", "${NONE:+b}a.txt", "d$NONE", "$A", "a.tx?", "d/*/", "*/sub", "*/*/y.txt", "w/*/*.txt",
    "nothing*", "nothing", "../a.txt", "/a.txt", "//a.txt", "d//x.txt", "d/./x.txt", "w/../a.txt", "w/**", "**/x.txt",
    "d/sub/", "a.txt/", "run.sh .dot", "d d", "a.txt a.txt", "d/x.txt d/sub/../x.txt", "h f", "f h", "w/up/d w/chain",
    "[a-b].txt", "[b-a].txt", "w/[", "a\\.txt", "{a,b}.txt", "a.txt|b", "~", "w/two\\ words",
)  # fmt: skip
_ENDS = ("", "", "/", "/", "/.", "/sub", "/sub/", "/new", "/new/deep/", "/x.txt", "/x.txt/", "/sub/deep")
_WIDE_ENDS = (
    "/..",
    "/../",
    "/./",
    "//",
    "/a b",
    "/$NONE",
    "/$A",
    "/${A:-q}/",
    "/'q'",
    "/new/..",
    "/é",
    "/.dot",
    "/\\x",
)
_PLACES = (".", "./", "sub", "sub/", "..", "/", "/fresh", "/fresh/", "/fresh/deep/")
_WIDE_PLACES = (
    "/.",
    "//",
    "/..",
    "",
    "$A",
    "$A/",
    "${NONE:-/fresh}/",
    "~",
    "./.",
    "../..",
    "/fresh//x/",
    "/fresh/../y/",
    "~/",
)
_OWNERS = ("--chown=7 ", "--chown=7:8 ", "--chown=0:5 ", "--chown=root ", "--chown=0 ")
_WIDE_FLAGS = (
    "--chown=me ", "--chown=me:you ", "--chown=7:you ", "--chown=nobody ", "--chown=:5 ", "--chown=5: ", "--chown=07 ",
    "--chown=$A ", "--chown=${NONE:-7} ", "--chown=-1 ", "--chown=4294967296 ", "--chown=root:root ", "--chown= ",
    "--chmod=755 ", "--chmod=0600 ", "--chmod=4755 ", "--chmod=u+x ", "--chmod=7 ", "--chmod= ", "--chmod=$A ",
    "--chmod=644 --chown=7 ", "--link ", "--link=false ", "--link=true ", "--exclude=x.txt ", "--parents ",
    "--CHOWN=7 ", "--chown ", "--bogus=1 ", "-- ",
)  # fmt: skip
_SMALL = (
    'ENV A=1 B="two words" C=$A', "ENV PATH=/x:$PATH", "LABEL a=b \"c d\"='e f'", "USER 7", "USER me:you", "USER root",
    "VOLUME /v", 'VOLUME ["/v", "/srv/"]', 'CMD ["a", "b"]', "CMD echo $A", 'ENTRYPOINT ["run"]', "ENTRYPOINT run it",
    "EXPOSE 80 443/udp", "EXPOSE 8000-8003", "STOPSIGNAL SIGINT", "STOPSIGNAL 9", 'SHELL ["/bin/bash", "-c"]',
    "HEALTHCHECK NONE", "HEALTHCHECK CMD true", 'HEALTHCHECK --interval=5s CMD ["x"]',
    "HEALTHCHECK --retries=3 --timeout=1m CMD y z", "ARG X=1", "ARG X", "ENV E=", "LABEL e=", "ENV A=${A:-d}$B",
)  # fmt: skip
_WIDE_SMALL = (
    "ARG A=arg", "ARG A", "ARG B=a.txt", "ENV B=b.txt", "ENV B d", "ENV B   d  e ", "ENV A=/srv B=$A C=${B:+c}",
    "ENV A 'x  y'", 'ENV A=a\\ b "Q=1"=2', "ENV A=\\$B B=$$A", "ENV A='$B' B=\"$B\" C=\"\\$B\"",
    "ENV A=${NONE-x} B=${A-x}", "ENV A=${A:?no}", "ENV A=${A#b}", "ENV A=${A%e}", "ENV A=${A/b/c}",
    "ENV A=${A:-${B:-c}}", "ENV A=${}", "ENV A=$1$@", "ENV A=x\\\n  B=y\\\n  C=$A", "ENV A=x \\\n# note\n  B=y",
    "ENV é=1", "ENV A_1=1 a.b=2 A-B=3", "ENV =x", "ENV A", "ENV PATH=", 'ENV A="a\nb"', "env a=b", "Env A=c",
    "\tENV A=d", "ENV\tA=e", "ENV A=f  ", "ENV A= B=1", "ENV A==1", "ENV A=1=2", "ENV A=a#b", "ENV A=# x",
    "ENV A='it''s'", "ENV A=\\", "ENV A=\\\\n", "ENV A=é B=\U0001f600", "ARG X=1 Y=2", "ARG Z=$X",
    "ARG Z=${X:-q}\nENV Z=$Z", "ARG PATH=/a", "ARG HTTP_PROXY", "ENV H=$HTTP_PROXY", "ENV T=$TARGETPLATFORM",
    "ARG TARGETPLATFORM\nENV T=$TARGETPLATFORM", "ARG TARGETARCH\nENV T=x$TARGETARCH", "ARG G\nENV G=$G",
    "ARG G=2\nENV G=$G", "ENV G=$G", "ARG BUILDKIT_INLINE_CACHE=1", "LABEL a b c", 'LABEL "a b"=c', "LABEL a=$A",
    "LABEL a='$A' b=\"$A\"", "LABEL a=1 a=2", "LABEL a=1\\\n  b=2", "LABEL A", "LABEL com.x/y=z",
    'LABEL a.b="{\\"x\\": 1}"', "label x=Y", "USER 7:8", "USER  7 ", "USER 0", "USER nobody", "USER ''", "USER $NONE",
    "USER ${A:-7}", "USER me:", "USER :8", "VOLUME /a /b", "VOLUME a", "VOLUME ['/x']", 'VOLUME ["/x y"]', "VOLUME $A",
    "VOLUME /", "VOLUME []", "VOLUME /v/ /v", 'VOLUME ["$A"]', "VOLUME '/q q'", "CMD a | b", "CMD []", 'CMD ["$A"]',
    "CMD [a]", 'CMD ["a", 1]', 'CMD ["a"] x', "CMD \\\n  a b", "CMD  two  spaces ", 'CMD [ "a" , "b" ]', "cmd x",
    "CMD a\\", 'CMD ["é\\u00e9"]', "CMD <<X", "CMD ['a']", "ENTRYPOINT []", 'ENTRYPOINT ["$A", "b"]',
    "ENTRYPOINT exec $A", 'ENTRYPOINT ["a"]\nCMD ["b"]', 'CMD ["b"]\nENTRYPOINT ["a"]',
    'SHELL ["/bin/sh", "-ec"]\nCMD x\nENTRYPOINT y', "SHELL []", "SHELL /bin/sh", 'SHELL ["sh"]', "EXPOSE 80/TCP",
    "EXPOSE 80/sctp 80", "EXPOSE 0", "EXPOSE 65536", "EXPOSE 1:2", "EXPOSE ${P:-81}", "EXPOSE 127.0.0.1:80:80",
    "EXPOSE 5-3", "EXPOSE 080", "EXPOSE '80'", 'EXPOSE "80 81"', "EXPOSE 80/tcp/udp", "EXPOSE a", "EXPOSE 1-3/udp",
    "STOPSIGNAL sigint", "STOPSIGNAL RTMIN+3", "STOPSIGNAL 0", "STOPSIGNAL 65", "STOPSIGNAL $NONE",
    "STOPSIGNAL ${S:-SIGHUP}", "STOPSIGNAL -1", "STOPSIGNAL '9'", "STOPSIGNAL TERM", "STOPSIGNAL 09",
    "STOPSIGNAL SIGRTMAX", "HEALTHCHECK --interval=1m30s --start-period=1.5s CMD x",
    "HEALTHCHECK --start-interval=1s CMD x", "HEALTHCHECK none", "HEALTHCHECK cmd x", 'HEALTHCHECK CMD ["x", "$A"]',
    "HEALTHCHECK CMD [x]", "HEALTHCHECK --timeout=2h CMD x   y", "HEALTHCHECK --interval=$A CMD x",
    "HEALTHCHECK CMD x \\\n  || exit 1", "HEALTHCHECK --retries=03 CMD x", "CMD --verbose x", "ENTRYPOINT --x",
    "ENV --a=b c=d", "LABEL --x=y", "USER --x 7", "WORKDIR --x /y", "EXPOSE --x 80", "VOLUME --x /y",
    "STOPSIGNAL --x 9", "ARG --x=1", "CMD -- x", 'CMD --x ["a"]', "CMD -x y", "HEALTHCHECK --x=1 CMD y",
    "HEALTHCHECK --interval CMD x", 'SHELL --x ["a"]', "# a comment", "   # another", "", "  ", "\\",
    "FROM scratch AS x", "BOGUS x", "ADD a.txt /q\\\n", "STOPSIGNAL", "USER",
)  # fmt: skip
_RARE = (
    "CMD []", "ENTRYPOINT []", "EXPOSE $A", "USER $A", "STOPSIGNAL ${A}", "WORKDIR $A", "VOLUME $A", "MAINTAINER me",
    "ONBUILD ENV o=1", "STOPSIGNAL BOGUS", "HEALTHCHECK --interval=0s CMD x", "HEALTHCHECK --retries=0 CMD x",
    "HEALTHCHECK NONE x", 'VOLUME [""]', "CMD", "WORKDIR /w/$NONE", "COPY --chown=1 --chown=2 a.txt /q",
)  # fmt: skip
_WIDE_COPIES = (
    "COPY <<EOF /here\nx $A\nEOF", "COPY <<'EOF' /here\nx $A\nEOF", "COPY <<-EOF a.txt /here/\n\tx\n\tEOF",
    "COPY a.txt", "COPY", "COPY a.txt \\\n  b.txt \\\n  # note\n  /x/", 'COPY ["a.txt", "/a b/"]',
    'COPY ["w/two words/x y.txt", "/x"]', 'COPY ["w/two words", "/a b"]', "COPY w/two\\ words /x",
    'COPY "w/two words" /x', "copy a.txt /x", "Copy\ta.txt\t/x", "COPY a.txt\u00a0/x", 'COPY ["a.txt"]',
    'COPY ["a.txt", "/x"', "COPY a.txt /x # no comment", "COPY --from=below /etc /x", "COPY --from=0 /etc/passwd /x",
    "ADD w/x.tar /x/", "ADD run.sh /x", "ADD d /x/", "ADD --chown=7 d /x", "COPY d/. /x", "COPY d/x.txt d/sub /x/",
    "COPY d /app/link", "COPY . .", "COPY ./ /app", "COPY . /", "COPY .dot .", "COPY w/.dot a.txt ./",
)  # fmt: skip
_PLAIN_SOURCES = (
    "a.txt", "run.sh", "d", "d/", "d/sub", "e", "g", "h", "link-file", "link-dir/x.txt", "*.txt", "d/*", "[ab].txt",
    "a.txt b.txt", "d g", ".", "w/two*", "w/ünï", ".dot", "w/hard", "w/harder", "s", "s/program", "s/open", "s/empty",
    "s/back*", "s/one/two", "w/n*", "$SRC", "${SRC}", "${NONE:-d}", "link-dir/sub", "./d/./sub/", "m", "m/a",
    "w/q\\$A.txt",
)  # fmt: skip
_PLAIN_TARGETS = (
    "/x", "/x/", "/x/y", "/x/y/", "/x/y/z/", "/new/", "/new/deep/er/", "./", ".", "rel", "rel/", "rel/ative/",
    "../up/", "/srv/", "/srv/sub/", "/data/", "/app/", "/app/sub/", "$DST/", "${DST}/in/", "/x y/", "/ünï/",
    "/app/link/", "/real/",
)  # fmt: skip
_PLAIN_WORKDIRS = (
    "/x", "/new", "sub", "/app/sub", "/app", "deeper/down", "..", "/srv", "$DST", "/x/y", "/app/link/deep",
    "/real/a/b", "/",
)  # fmt: skip
_PLAIN_SETTINGS = (
    "ENV SRC=d DST=/x", "ENV SRC=a.txt DST=/new/deep", "ENV A=1\nENV B=${A}2 C=$A\nENV D=$B$C${A:+y}${NONE:-z}",
    "ENV PATH=$PATH:/opt/bin\nENV PATH=/first:${PATH}", "ENV ONE='$A' TWO=\"$A b\" THREE=\\$A FOUR=a\\ b",
    "ARG SRC=g\nENV S=$SRC", "ARG V=1\nENV V=${V}2\nLABEL v=$V", "ENV A=$A$A", "ENV LONG one two  three",
    "LABEL a=1 b='two words' \"c d\"=\"e \\\"f\\\"\"", "LABEL multi=1 \\\n  line=2", "LABEL path=$PATH a.b/c-d=x",
    "LABEL a=1\nLABEL a=2", "EXPOSE 80", "EXPOSE 8000-8010/udp 9", "EXPOSE 53/udp 53/tcp\nEXPOSE 53", "USER 7",
    "USER 1000:1000", "USER me", "USER root", "HEALTHCHECK NONE",
    'HEALTHCHECK --interval=1m --timeout=3s --start-period=5s --retries=2 CMD ["test", "-f", "/x"]',
    "HEALTHCHECK CMD curl -f $A || exit 1", 'SHELL ["/bin/bash", "-o", "pipefail", "-c"]\nCMD a | b',
    'SHELL ["/bin/sh", "-ec"]\nENTRYPOINT run $A', "STOPSIGNAL SIGTERM", "STOPSIGNAL 15", 'CMD ["a", "-b"]',
    "CMD x && y", 'ENTRYPOINT ["/run.sh"]', 'ENTRYPOINT ["a"]\nCMD ["b"]', "CMD a\nENTRYPOINT b", "VOLUME /later",
    'VOLUME ["/later one", "/two"]', "ENV E= F=\nLABEL e=", "ENV DST=/srv/sub", "ENV SRC=run.sh",
)  # fmt: skip


def plain_text(chance: random.Random) -> str:
    """Three to nine instructions as people write them, of which an engine refuses few."""
    lines = ["ENV SRC=d DST=/x"] if chance.random() < 0.5 else []
    for _ in range(chance.randint(3, 8)):
        kind = chance.random()
        if kind < 0.55:
            owner = chance.choice(("",) * 6 + ("--chown=7 ", "--chown=7:8 ", "--chown=0:0 ", "--chown=1000:1000 "))
            source, target = chance.choice(_PLAIN_SOURCES), chance.choice(_PLAIN_TARGETS)
            words = ("COPY " + owner).rstrip()
            lines.append(
                f"{words} {json.dumps([*source.split(' '), target], ensure_ascii=False)}"
                if " " in target
                else f"{words} {source} {target}"
            )
        elif kind < 0.7:
            lines.append(f"WORKDIR {chance.choice(_PLAIN_WORKDIRS)}")
        else:
            lines.append(chance.choice(_PLAIN_SETTINGS))
    return "".join(f"{line}\n" for line in lines)


_BEFORE = (
    "ARG G=1\n",
    "# escape=\\\n",
    "# check=skip=all\n",
    "\n\n# note\n",
    "ARG G\n",
    "\ufeff",
)


def random_before(chance: random.Random) -> str:
    """What stands before the first FROM."""
    return chance.choice(_BEFORE) if chance.random() < 0.1 else ""


def random_text(chance: random.Random) -> str:
    """One to five instructions."""
    makers = (_copy,) * 9 + (_workdir,) * 3 + (_small,) * 3
    text = "".join(f"{chance.choice(makers)(chance)}\n" for _ in range(chance.choice((1, 2, 3, 3, 4, 5))))
    return text.replace("\n", "\r\n") if chance.random() < 0.02 else text


def _small(chance: random.Random) -> str:
    return chance.choice(chance.choices((_SMALL, _WIDE_SMALL, _RARE), (6, 4, 1))[0])


def _copy(chance: random.Random) -> str:
    if chance.random() < 0.05:
        return chance.choice(_WIDE_COPIES)
    name = chance.choice(("COPY",) * 9 + ("ADD",))
    owner = chance.choices(("", chance.choice(_OWNERS), chance.choice(_WIDE_FLAGS)), (14, 5, 2))[0]
    source = chance.choice(_SOURCES if chance.random() < 0.7 else _WIDE_SOURCES)
    if chance.random() < 0.25:
        target = chance.choice(_PLACES if chance.random() < 0.8 else _WIDE_PLACES)
    else:
        folder = chance.choice(FOLDERS[:10] if chance.random() < 0.9 else FOLDERS).replace("%20", " ")
        target = f"/{folder}{chance.choice(_ENDS if chance.random() < 0.9 else _WIDE_ENDS)}"
    if (" " in source or "*" in source) and chance.random() < 0.8:
        target = f"{target.rstrip('/')}/"
    if " " in target or chance.random() < 0.1:
        return f"{name} {owner}{json.dumps([*source.split(' '), target], ensure_ascii=False)}"
    return f"{name} {owner}{source} {target}"


def _workdir(chance: random.Random) -> str:
    places = ("sub", "..", "/", "new/deep", f"/{chance.choice(FOLDERS[:10])}", "/fresh", "$A", "/app/x.txt", "/fresh/")
    wide = (
        "/a b",
        "'/q'",
        '"/q r"',
        "${A:-/z}",
        ".",
        "./x/../y",
        "/fresh//a/./b/",
        "~",
        "/é",
        "\\x",
        "/fresh/..",
        "/app/../srv",
    )
    return f"WORKDIR {chance.choice(places if chance.random() < 0.8 else wide)}"
