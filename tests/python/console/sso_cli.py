"""Logins of the command line whose user logs in at an identity provider, with the real command line."""

import os
import subprocess
from pathlib import Path

from harness import run
from playwright.sync_api import expect
from provider import Provider

BROWSER = """#!/bin/sh
printf '%s\\n' "$1" > "$HOME/opened"
"""


class Terminal:
    """A user of the command line, with a home of their own."""

    def __init__(self, bench, name):
        self.bench = bench
        self.home = Path(bench.config["pictures"]) / name
        self.home.mkdir()
        self.authority = self.home / "ca.pem"
        self.authority.write_text(bench.config["authority"])
        self.browser = self.home / "browser"
        self.browser.write_text(BROWSER)
        self.browser.chmod(0o700)

    def start(self, program, *arguments, **environment):
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], **environment}
        return subprocess.Popen(
            [program, *arguments], env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)

    def log_in(self, program, *flags, **environment):
        return self.start(program, "login", self.bench.origin, "--ca-file", self.authority, *flags, **environment)

    def opened(self):
        """The address that the command line opens in the browser of the user."""
        file = self.home / "opened"
        return self.bench.until("the browser", lambda: file.exists() and file.read_text().strip())

    def is_logged_in(self, login, program, name):
        said, _ = login.communicate(timeout=30)
        assert login.returncode == 0 and f"as the user {name}" in said, said
        whoami, _ = self.start(program, "whoami").communicate(timeout=30)
        assert name in whoami, whoami


def a_browser_on_the_same_machine(bench):
    provider, terminal = Provider(bench), Terminal(bench, "same")
    program = bench.config["terminal"]
    login = terminal.log_in(program, "--browser", "--ttl", "10m", BROWSER=str(terminal.browser))
    page = bench.context.new_page()
    page.goto(terminal.opened())
    # The login comes first, and returns to the question.
    page.get_by_role("link", name="Continue with Corporate login").click()
    provider.log_in(page, "ada")
    expect(page.get_by_role("heading", name="Log in on the command line")).to_be_visible()
    expect(page.locator("dd").first).to_have_text("corp:ada")
    # The last page is that of the command line.
    bench.allowed.append("http://127.0.0.1:")
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_text("close this page")).to_be_visible()
    terminal.is_logged_in(login, program, "ada")


def a_browser_on_another_machine(bench):
    provider, terminal = Provider(bench), Terminal(bench, "elsewhere")
    # It runs in a network from which the server alone can be reached.
    program = bench.config["terminal_elsewhere"]
    login = terminal.log_in(program, "--no-browser")
    lines = [""]
    while not lines[-1].startswith("and enter there:"):
        line = login.stdout.readline()
        assert line, lines
        lines.append(line.strip())
    [link] = [line for line in lines if line.startswith("https://")]
    typed = lines[-1].removeprefix("and enter there:").strip()
    page = bench.context.new_page()
    page.goto(link)
    page.get_by_role("link", name="Continue with Corporate login").click()
    provider.log_in(page, "tim")
    # What is behind the # of the link came through the login.
    page.get_by_label("The characters that the terminal shows").fill(typed.lower())
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("dd").first).to_have_text("corp:tim")
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_text("Go back to the terminal")).to_be_visible()
    terminal.is_logged_in(login, program, "tim")


run(a_browser_on_the_same_machine, a_browser_on_another_machine)
