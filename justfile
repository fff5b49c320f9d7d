# Short names for frequent commands. Each is one command that also works without just.

# Lists the recipes when no recipe is named.
_default:
    @just --list

# Runs the server with the web console on ./postern-data.
serve *ARGS:
    cargo xtask serve -- {{ARGS}}

# Runs everything that a change has to pass.
test:
    cargo xtask test

# Runs the same without the slow tests.
quick:
    cargo xtask test --quick

# Runs the tests while you work.
watch *FILTER:
    cargo nextest run {{FILTER}}

# Benchmarks, compared with other programs.
bench *ARGS:
    cargo xtask bench {{ARGS}}

# Checks the direction of dependencies and the length of functions and files.
layout:
    cargo xtask check-layout

# Formats the source.
fmt:
    cargo fmt --all
