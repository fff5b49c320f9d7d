# Short names for what is done often; each is one command that also works without just.

# What the list of recipes shows when no recipe is named.
_default:
    @just --list

# Runs the server on ./postern-data.
serve *ARGS:
    cargo run --release -- serve {{ARGS}}

# Everything that a change has to pass.
test:
    cargo xtask test

# The same without the slow tests.
quick:
    cargo xtask test --quick

# The inner loop.
watch *FILTER:
    cargo nextest run {{FILTER}}

# How fast it is, beside others.
bench *ARGS:
    cargo xtask bench {{ARGS}}

# Direction of dependencies, length of functions and files.
layout:
    cargo xtask check-layout

# Formats the source.
fmt:
    cargo fmt --all
