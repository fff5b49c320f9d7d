"""Names, annotations and values that try to become a page: all of them are text."""

import base64

from playwright.sync_api import expect

from harness import API, run

PLANTED = [
    "<img src=x onerror=planted=1>",
    "<script>planted=2</script>",
    "<svg onload=planted=3>",
    "\"><iframe srcdoc='<script>parent.planted=4</script>'>",
    "javascript:planted=5",
    "JaVaScRiPt:planted=6",
    " javascript:planted=7",
    "data:text/html,<script>planted=8</script>",
    "vbscript:planted=9",
    "{{constructor.constructor('planted=10')()}}",
    "${planted=11}",
    "{@html '<img src=x onerror=planted=12>'}",
    "</title><script>planted=13</script>",
    "<a href=javascript:planted=14>x</a>",
    "\u202egnp.exe",
    "\u2066\u202eabc\u2069",
    "\u200f\u061c\ufeff",
    "<style>@import 'https://evil.example/x.css'</style>",
    "<math><mtext><img src=x onerror=planted=15></mtext></math>",
    "x" * 10_000 + "<img src=x onerror=planted=16>",
]


def nothing_that_is_stored_becomes_a_page(bench):
    assert len(PLANTED) == 20
    for number, text in enumerate(PLANTED):
        bench.secret(f"planted-{number}", {"value": text}, display_name=text,
                     annotations={"note": text, "url": text}, labels={"n": str(number)})
        user = {"metadata": {"name": f"planted-{number}", "annotations": {"note": text}},
                "spec": {"displayName": text, "email": text[:200]}}
        bench.call("POST", f"{API}/users", user)
        bench.call("POST", f"{API}/projects", {"metadata": {"name": f"planted-{number}"}, "spec": {"displayName": text}})
    page = bench.logged_in()
    said = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    paths = ["/secrets", "/users", "/projects"]
    paths += [f"/secrets/platform/planted-{number}" for number in range(len(PLANTED))]
    paths += [f"/users/planted-{number}" for number in range(0, len(PLANTED), 3)]
    for path in paths:
        bench.go(page, path)
        if "planted-" in path:
            expect(page.get_by_role("heading", level=1)).to_contain_text(path.rsplit("/", 1)[1])
        expect(page.locator("main").get_by_text("planted-").locator("visible=true").first).to_be_visible()
        for button in page.get_by_role("button", name="Reveal").all():
            button.click()
            expect(page.locator("[data-secret]")).to_be_visible()
        for tab in ("YAML", "Events"):
            found = page.get_by_role("tab", name=tab).or_(page.get_by_role("link", name=tab, exact=True))
            if found.count():
                found.first.click()
        state = page.evaluate(
            """() => [typeof planted, document.querySelectorAll('iframe, embed, object, base, [srcdoc]').length,
                 [...document.querySelectorAll('a')].filter((one) => !/^https?:$/.test(one.protocol)).map((one) => one.href),
                 [...document.querySelectorAll('*')].filter((one) => [...one.attributes].some((at) => at.name.startsWith('on'))).length,
                 document.documentElement.scrollWidth > innerWidth + 1]"""
        )
        assert state == ["undefined", 0, [], 0, False], (path, state)
    assert not said, said


run(nothing_that_is_stored_becomes_a_page)
