#!/usr/bin/env bash
# Makes .venv from the locked requirements, installs holdfast into it in
# editable mode, finds a Java that Spark can run on, and, where it may, installs
# the Redis and PostgreSQL servers that tests start (without Redis its tests are
# skipped, and say so; without PostgreSQL its tests fail, and say so).
#
# Safe to call at any time and from several places at once: it does only what
# is missing, and says nothing when nothing is.
#
# Exit codes: 0 ready; 1 an installation failed; 2 no suitable Python;
# 3 no suitable Java.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
VENV="$ROOT/.venv"
REQUIREMENTS_STAMP="$VENV/.requirements-stamp"
PROJECT_STAMP="$VENV/.project-stamp"
JAVA_RECORD="$VENV/holdfast-java-home"
REDIS_STAMP="$VENV/.redis-stamp"
POSTGRES_STAMP="$VENV/.postgres-stamp"
MIN_JAVA=17
cd "$ROOT"

say() { printf 'setup: %s\n' "$*" >&2; }

content_hash() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum | cut -d ' ' -f 1
    else
        shasum -a 256 | cut -d ' ' -f 1
    fi
}

stamp_is() { # stamp_is FILE VALUE
    [[ -f "$1" && "$(<"$1")" == "$2" ]]
}

write_file() { # write_file FILE VALUE: all or nothing
    printf '%s\n' "$2" >"$1.new.$$"
    mv -f "$1.new.$$" "$1"
}

# --- Python ------------------------------------------------------------------

python_is_good() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in python3.11 python3; do
        if command -v "$candidate" >/dev/null 2>&1 && python_is_good "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    say "holdfast needs Python 3.11 or newer, and neither python3.11 nor python3 is one."
    say "Install Python 3.11 (Debian and Ubuntu: apt-get install python3.11 python3.11-venv) and run this again."
    return 2
}

make_venv() {
    local python
    if [[ -x "$VENV/bin/python" ]] && python_is_good "$VENV/bin/python" \
        && "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        return 0
    fi
    python="$(find_python)" || exit 2
    say "making .venv with $("$python" --version 2>&1)"
    if ! "$python" -m venv --clear "$VENV"; then
        say "could not make .venv; on Debian and Ubuntu the package python3-venv is needed."
        exit 1
    fi
}

pip_install() {
    "$VENV/bin/python" -m pip --disable-pip-version-check --no-input install --quiet "$@" || {
        say "installing failed; see the messages above."
        exit 1
    }
}

install_requirements() {
    rm -f "$REQUIREMENTS_STAMP" "$PROJECT_STAMP"
    make_venv
    say "installing the locked requirements (a few minutes the first time)"
    pip_install --require-hashes -r requirements.txt
    write_file "$REQUIREMENTS_STAMP" "$1"
}

install_project() {
    rm -f "$PROJECT_STAMP"
    say "installing holdfast in editable mode"
    pip_install --no-deps --no-build-isolation --editable .
    write_file "$PROJECT_STAMP" "$1"
}

# --- Java --------------------------------------------------------------------

# The major version of the Java in a home directory. Reads the release file,
# which is quicker than starting a virtual machine, and asks java without one.
java_major() {
    local home="$1" line version=""
    [[ -n "$home" && -x "$home/bin/java" ]] || return 1
    if [[ -r "$home/release" ]]; then
        while IFS= read -r line; do
            if [[ "$line" == JAVA_VERSION=* ]]; then
                version="${line#JAVA_VERSION=}"
                break
            fi
        done <"$home/release"
    fi
    if [[ -z "$version" ]]; then
        line="$("$home/bin/java" -version 2>&1 </dev/null)" || return 1
        [[ "$line" =~ version\ (\"[0-9._]+) ]] || return 1
        version="${BASH_REMATCH[1]}"
    fi
    version="${version//\"/}"
    version="${version#1.}" # Java 8 called itself 1.8
    [[ "$version" =~ ^[0-9]+ ]] || return 1
    printf '%s\n' "${BASH_REMATCH[0]}"
}

java_is_good() {
    local major
    major="$(java_major "$1")" && ((major >= MIN_JAVA))
}

java_home_on_path() {
    local java
    java="$(command -v java)" || return 1
    java="$(readlink -f "$java")" || return 1
    printf '%s\n' "${java%/bin/java}"
}

java_home_elsewhere() {
    local home
    for home in /usr/lib/jvm/* /opt/java/* /Library/Java/JavaVirtualMachines/*/Contents/Home; do
        if java_is_good "$home"; then
            printf '%s\n' "$home"
            return 0
        fi
    done
    return 1
}

# True when Spark finds a good Java with no help beyond what is on record.
# Spark takes JAVA_HOME before it looks at PATH, and so does this; a record
# stands only until a good JAVA_HOME says otherwise.
java_is_ready() {
    local home=""
    if [[ -f "$JAVA_RECORD" ]]; then
        home="$(<"$JAVA_RECORD")"
        [[ "${JAVA_HOME:-$home}" == "$home" ]] || ! java_is_good "$JAVA_HOME" || return 1
        java_is_good "$home"
    elif [[ -n "${JAVA_HOME:-}" ]]; then
        java_is_good "$JAVA_HOME"
    else
        home="$(java_home_on_path)" && java_is_good "$home"
    fi
}

install_java() {
    [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null 2>&1 || return 1
    say "no Java $MIN_JAVA or newer found; installing openjdk-17-jre-headless"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -qq update && apt-get -qq -y --no-install-recommends install openjdk-17-jre-headless; } >&2
}

java_is_missing() {
    say "no Java $MIN_JAVA or newer: looked at JAVA_HOME, at java on PATH and in the usual directories."
    say "Install one and run this again:"
    say "  Debian, Ubuntu   apt-get install openjdk-17-jre-headless   (as root)"
    say "  Fedora           dnf install java-21-openjdk-headless      (as root)"
    say "  macOS            brew install openjdk@17"
    say "or set JAVA_HOME to the directory of a Java $MIN_JAVA or newer."
    exit 3
}

find_java() {
    local home
    rm -f "$JAVA_RECORD"
    java_is_ready && return 0
    if home="$(java_home_on_path)" && java_is_good "$home"; then
        :
    elif home="$(java_home_elsewhere)"; then
        :
    elif install_java; then
        java_is_ready && return 0
        home="$(java_home_elsewhere)" || java_is_missing
    else
        java_is_missing
    fi
    say "using the Java in $home"
    write_file "$JAVA_RECORD" "$home"
}

# --- Redis -------------------------------------------------------------------

# Ready, too, when it was tried once and could not be had: it is not needed to run.
redis_is_ready() {
    command -v redis-server >/dev/null 2>&1 || command -v valkey-server >/dev/null 2>&1 \
        || [[ -f "$REDIS_STAMP" || "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null 2>&1
}

# Never fails the setup. No service is started: the tests start servers of their own.
install_redis() {
    say "installing redis-server for the tests of the Redis store"
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get -qq update && RUNLEVEL=1 apt-get -qq -y --no-install-recommends install redis-server; } \
        >/dev/null 2>&1; then
        say "redis-server could not be installed; the tests of the Redis store will be skipped."
        write_file "$REDIS_STAMP" "could not be installed; remove this file to try again"
    fi
}

# --- PostgreSQL --------------------------------------------------------------

# Ready, too, when it was tried once and could not be had: it is not needed to run.
postgres_is_ready() {
    { command -v initdb && command -v postgres; } >/dev/null 2>&1 || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null \
        || [[ -f "$POSTGRES_STAMP" || "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null 2>&1
}

# Never fails the setup. No cluster is made and no service is started: the tests do both for themselves.
install_postgres() {
    say "installing postgresql for the tests of database sinks"
    export DEBIAN_FRONTEND=noninteractive
    mkdir -p /etc/postgresql-common
    [[ -f /etc/postgresql-common/createcluster.conf ]] \
        || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    if ! { apt-get -qq update && RUNLEVEL=1 apt-get -qq -y --no-install-recommends install postgresql; } \
        >/dev/null 2>&1; then
        say "postgresql could not be installed; the tests of PostgreSQL sinks will fail and say so."
        write_file "$POSTGRES_STAMP" "could not be installed; remove this file to try again"
    fi
}

# --- all together ------------------------------------------------------------

requirements_hash="$(content_hash <requirements.txt)"
project_hash="$({ cat pyproject.toml && printf '%s\n' "$ROOT"; } | content_hash)"

requirements_are_ready() { [[ -x "$VENV/bin/python" ]] && stamp_is "$REQUIREMENTS_STAMP" "$requirements_hash"; }
project_is_ready() { [[ -x "$VENV/bin/holdfast" ]] && stamp_is "$PROJECT_STAMP" "$project_hash"; }

if requirements_are_ready && project_is_ready && java_is_ready && redis_is_ready && postgres_is_ready; then
    exit 0
fi

# One at a time from here on; whoever waited looks again at what is missing.
# The lock is on the repository's directory, so it leaves no file behind.
if command -v flock >/dev/null 2>&1; then
    exec 9<"$ROOT"
    if ! flock --nonblock 9; then
        say "waiting for another setup to finish"
        flock 9
    fi
fi

requirements_are_ready || install_requirements "$requirements_hash"
project_is_ready || install_project "$project_hash"
java_is_ready || find_java
redis_is_ready || install_redis
postgres_is_ready || install_postgres
