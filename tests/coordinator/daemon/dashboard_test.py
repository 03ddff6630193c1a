#!/usr/bin/env python3
"""The dashboard in a headless Chromium: a person opens the link, watches a job, pauses, resumes and cancels it. And what
those find who have no link. Every wait has a deadline.

Usage: dashboard_test.py BIN_FOLDER [Dashboard.test_NAME ...]
"""
import json
import os
import shutil
import signal
import sys
import urllib.error
import urllib.request

import browser
from daemon_fixture import DaemonCase, read, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(url, method="GET", **headers):
    """Status, headers and text."""
    request = urllib.request.Request(url, method=method, data=b"" if method == "POST" else None,
                                     headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with OPENER.open(request, timeout=60) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


class Dashboard(DaemonCase):
    def setUp(self):
        super().setUp()
        self.browser = None

    def tearDown(self):
        if self.browser is not None:
            self.browser.close()
        super().tearDown()

    def link(self, *arguments):
        return self.ask("dashboard", *arguments)["url"]

    def open_browser(self):
        why = browser.missing()
        if why:
            self.skipTest(why)
        self.browser = browser.Browser()
        # Also where a test fails before its end.
        self.addCleanup(self.browser.close)

    def shows(self, selector, text):
        until(lambda: text in self.browser.text(selector), f"{selector} shows {text!r}",
              lambda: f"{self.browser.text('body')}\n{self.told()}")

    def click_on(self, action):
        """Until it is taken: what ends a job asks whether that is meant, and for some seconds alone."""
        button = f".actions [data-action={action}]"
        until(lambda: self.browser.count(f"{button}:not(:disabled)"), f"{action} can be clicked", self.told)

        def taken():
            if self.browser.count(f"{button}:not(:disabled)"):
                self.browser.click(button)
            return self.browser.count(f"{button}:not(:disabled)") == 0
        until(taken, f"{action} is taken", self.told)

    def keep_picture(self, name):
        self.browser.screenshot(os.path.join(os.path.dirname(self.bin), "pictures", f"{name}.png"))

    def test_makes_sentences_of_messages(self):
        self.start_daemon("--http", "127.0.0.1:0")
        self.open_browser()
        self.browser.open(self.link())

        def event(**what):
            message = {"sequence": "7", "time_unix_ns": "1700000000123456789", "job_id": "12", "attempt": 1, **what}
            told = self.browser.script("return import('/assets/messages.js').then((m) => m.eventOf(arguments[0]));", message)
            self.assertEqual((told["sequence"], told["ms"], told["job"]), (7, 1700000000123, 12))
            return told["kind"], told["level"], told["text"]

        def changed(to, reason, headline=""):
            return event(state_changed={"from": "JOB_RUNNING", "to": to, "reason": reason, "failure": {"headline": headline}})

        long = "x" * 200
        cut = f"five failures: {long[:100]}..."
        for told, expected in (
                (changed("JOB_FAILED", "five failures", "rank 3 died"), ("failed", "bad", "five failures; rank 3 died")),
                (changed("JOB_RECOVERING", "rank 3 died", "rank 3 died"), ("recovering", "warn", "rank 3 died")),
                (changed("JOB_FAILED", cut, long), ("failed", "bad", cut)),
                (changed("JOB_CANCELLED", "cancelled by ada"), ("cancelled", "info", "by ada")),
                (event(state_changed={"to": "JOB_RUNNING", "reason": ""}), ("running", "good", "")),
                (event(submitted={"name": "night", "owner": "ada"}), ("submitted", "info", "by ada")),
                (event(desired_state_changed={"desired_state": "JOB_DESIRED_PAUSE", "by": "ada"}), ("asked", "info", "pause, by ada")),
                (event(desired_state_changed={"desired_state": "JOB_DESIRED_RUN", "by": ""}), ("asked", "info", "resume")),
                (event(placed={"allocation": [{"node": "n1", "ranks": 8}]}), ("placed", "info", "on n1 x8")),
                (event(placed={"allocation": []}), ("placed", "info", "gave its allocation back")),
                (event(checkpointed={"step": "40"}), ("checkpoint", "info", "of step 40")),
                (event(stalled={"text": "rank 1 is stopped", "over": False}), ("stalled", "bad", "rank 1 is stopped")),
                (event(node_changed={"node": "n2", "state": "NODE_LOST", "reason": "silent for 10 s"}),
                 ("node", "bad", "n2 is lost: silent for 10 s")),
                (event(node_changed={"node": "n2", "state": "NODE_READY", "drained": True, "reason": ""}),
                 ("node", "warn", "n2 is ready, drained")),
                (event(node_changed={"node": "n2", "state": "NODE_READY", "drained": True, "reason": "new disk", "by": "ada"}),
                 ("node", "warn", "n2 is ready, drained by ada: new disk")),
                (event(node_changed={"node": "n2", "state": "NODE_LOST", "gone": True}), ("node", "bad", "n2 is gone for good")),
                (event(), ("event", "info", "of a kind that this version does not know"))):
            self.assertEqual(told, expected)

    def test_clicks_through(self):
        self.start_daemon("--http", "127.0.0.1:0")
        link = self.link()
        home = link[:link.index("/login")] + "/"
        # Loss and speed of a long job, which is cancelled in the end.
        job = self.submit("--set", "training.steps=10000000", "--set", "checkpoint.every_steps=100000")
        self.open_browser()
        self.browser.open(home)
        self.shows("h1", "wants to know you")
        self.browser.complaints()  # the answer 401
        self.browser.open(link)
        self.shows("#pulse", "live")
        self.shows(".node[data-node=n1]", "ready")
        self.shows(".events", "submitted")
        self.browser.click(f".row[data-job='{job}']")
        self.shows("h1 .chip", "running")
        self.reach(job, 20)
        self.shows("#loss .about", "step")
        until(lambda: self.browser.count("#loss .chart canvas, #loss .chart svg path"), "a curve", self.told)
        self.shows("#timeline .legend", "forward")
        self.shows("#timeline .about", "step")
        self.assertEqual(self.browser.count("#mesh .cell"), 2)
        self.shows("#memory", "stage 1")
        self.shows("#log .tools", "attempt 1")
        self.keeps_its_part()
        step = self.browser.text("[data-tile=Step] .value")
        until(lambda: self.browser.text("[data-tile=Step] .value") != step, "the step moves", self.told)
        self.keep_picture("running")

        self.click_on("pause")
        self.shows("h1 .chip", "paused")
        self.shows("#events", "paused")
        self.assertEqual(self.show(job)["status"]["state"], "JOB_PAUSED")
        self.click_on("resume")
        self.shows("h1 .chip", "running")
        self.shows("[data-tile=Attempt] .value", "2")
        self.click_on("cancel")
        self.shows("h1 .chip", "cancelled")
        self.assertEqual(self.show(job)["status"]["state"], "JOB_CANCELLED")
        self.shows(f".row[data-job='{job}'] .chip", "cancelled")
        self.assertEqual(self.browser.count(".actions button:not(:disabled)"), 0)
        kinds = self.browser.script("return [...document.querySelectorAll('#events .event')].map((e) => e.dataset.kind)")
        self.assertNotIn(("checkpoint", "checkpoint"), list(zip(kinds, kinds[1:])))
        for kind in ("submitted", "placed", "running", "paused", "checkpoint", "cancelled"):
            self.assertIn(kind, kinds)

        self.shows(f".row[data-job='{job}'] .note", "by ")
        self.assertNotIn("cancelled", self.browser.text(f".row[data-job='{job}'] .note"))
        self.assertIn("n1 x2", self.browser.text(".title .about"))

        self.shows_what_waits()
        self.shows_one_step()
        self.click_to_nodes()
        self.outlives_a_restart(home)

    def keeps_its_part(self):
        """Steps that were dragged over stay in view while others come in. The simpler curves have no such thing."""
        if not self.browser.count("#loss .u-over"):
            return
        part = "return document.querySelector('#loss .chart').dataset.part"
        self.browser.drag("#loss .u-over", 0.3, 0.6)
        kept = until(lambda: self.browser.script(part), "a part is shown", self.told)
        step = self.browser.text("[data-tile=Step] .value")
        for _ in range(3):
            until(lambda: self.browser.text("[data-tile=Step] .value") != step, "the step moves", self.told)
            step = self.browser.text("[data-tile=Step] .value")
            self.assertEqual(self.browser.script(part), kept)
        self.browser.double_click("#loss .u-over")
        until(lambda: self.browser.script(part) == "", "all steps are shown", self.told)

    def shows_what_waits(self):
        """Why it waits, and what it would be; what has never run has no empty curves."""
        job = self.submit("--set", "resources.gpus_per_rank=1")
        self.shows(f".row[data-job='{job}'] .note", "GPU")
        self.browser.click(f".row[data-job='{job}']")
        self.shows(".banner", "GPU")
        self.shows("#memory", "stage 1")
        self.assertEqual(self.browser.count("#mesh .cell"), 2)
        self.shows(".early", "once it runs")
        self.assertEqual(self.browser.count("#mesh .small"), 0)
        # Too many ranks for numbers.
        many = self.submit("--set", "parallelism.data_parallel_size=16", "--set", "training.global_batch_size=32",
                           "--set", "resources.cpus_per_rank=4096")
        self.browser.click(f".row[data-job='{many}']")
        self.shows("#mesh .legend", "a row is a replica")
        self.assertEqual(self.browser.count("#mesh .small .cell"), 32)
        self.assertEqual(self.browser.text("#mesh .small .cell"), "")
        self.fits(390, 1280)
        self.click_on("cancel")
        self.shows("h1 .chip", "cancelled")
        self.browser.click(f".row[data-job='{job}']")
        self.shows("h1 .chip", "pending")
        self.assertEqual(self.browser.count("#loss:not([hidden]), #log:not([hidden])"), 0)
        self.click_on("cancel")
        self.shows("h1 .chip", "cancelled")
        self.shows(".early", "never ran")

    def shows_one_step(self):
        """A point, where there is no line to draw yet; it is drawn without an error at least."""
        job = self.submit("--set", "training.steps=1", "--set", "optimizer.warmup_steps=1")
        self.browser.click(f".row[data-job='{job}']")
        self.shows("h1 .chip", "completed")
        self.shows("#loss .about", "step 1 ")
        until(lambda: self.browser.count("#loss .chart canvas, #loss .chart svg circle"), "a point", self.told)
        self.shows("#timeline .legend", "forward")
        self.fits(500, 1280)
        shutil.rmtree(self.run_folder(job))
        self.browser.click(".brand")
        self.shows("h1", "Cluster")
        self.browser.click(f".row[data-job='{job}']")
        for panel in ("#loss", "#throughput", "#timeline"):
            self.shows(panel, "are gone")

    def fits(self, *widths):
        for width in widths:
            self.browser.resize(width, 900)
            cut = self.browser.script("return [...document.querySelectorAll('.tile *, .panel > .head *')]"
                                      ".filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)"
                                      ".map((e) => e.innerText)")
            self.assertEqual(cut, [], f"cut off at {width}")
            wide = self.browser.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            self.assertLessEqual(wide, 0, f"{width} is too narrow")

    def click_to_nodes(self):
        self.browser.click(".brand")
        self.ask("drain", "n1", "--reason", "new <b>disk</b>")
        self.shows(".node[data-node=n1][data-state=drained] .reason", "new <b>disk</b>")
        theme = self.browser.script("return document.documentElement.dataset.theme")
        self.browser.click("#theme")
        self.assertNotEqual(self.browser.script("return document.documentElement.dataset.theme"), theme)
        self.fits(1280, 1920, 700)
        self.assertEqual(self.browser.complaints(), [])
        self.keep_picture("cluster")

    def outlives_a_restart(self, home):
        """The daemon comes back at its port: a page that is open finds that its session has ended."""
        self.stop_daemon()
        self.shows("#pulse", "not answer")
        self.start_daemon("--http", home[len("http://"):-1])
        self.shows("h1", "wants to know you")

    def test_lets_in_whom_it_knows(self):
        self.write("tokens", "submit ada ada-has-a-long-token\nsubmit bob bob-has-a-long-token\n", 0o600)
        self.write("ada", "ada-has-a-long-token\n", 0o600)
        self.start_daemon("--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--token-file", f"{self.folder}/tokens",
                          "--allow-folder", self.folder)
        port = until(self.ready_port, "the port", self.told)
        link = self.link("--coordinator", f"127.0.0.1:{port}", "--token-file", f"{self.folder}/ada")
        home = link[:link.index("/login")]
        job = self.submit("--set", "training.steps=10000000")  # not ada's
        for path in ("/", "/api/jobs", f"/api/jobs/{job}/log", "/login?key=x"):
            status, headers, _ = ask(home + path)
            self.assertEqual(status, 401, path)
            self.assertNotIn("Set-Cookie", headers)
        status, headers, _ = ask(link)
        cookie = headers["Set-Cookie"]
        self.assertEqual(status, 200)
        self.assertIn("HttpOnly; SameSite=Strict", cookie)
        self.assertEqual(ask(link)[0], 401)
        cookie = cookie.split(";")[0]
        who = json.loads(ask(home + "/api/cluster", Cookie=cookie)[2])
        self.assertEqual((who["user"], who["role"]), ("ada", "submit"))
        self.assertEqual(json.loads(ask(home + "/api/jobs", Cookie=cookie)[2])["jobs"], [])
        self.assertEqual(ask(f"{home}/api/jobs/{job}", Cookie=cookie)[0], 403)
        cancel = f"{home}/api/jobs/{job}/cancel"
        self.assertEqual(ask(cancel, "POST", Cookie=cookie)[0], 403)
        self.assertEqual(ask(cancel, "POST", Cookie=cookie, X_Trireme="1")[0], 403)
        admin = ask(self.link())[1]["Set-Cookie"].split(";")[0]
        self.assertEqual(ask(cancel, "POST", Cookie=admin)[0], 403)
        self.assertEqual(ask(cancel, "POST", Cookie=admin, X_Trireme="1", Origin="http://evil.example")[0], 403)
        self.assertNotIn("cancel", json.dumps(self.show(job)).lower())
        self.assertEqual(ask(home + "/", Host="evil.example", Cookie=admin)[0], 421)
        self.assertEqual(ask(cancel, "POST", Cookie=admin, X_Trireme="1")[0], 200)
        self.reach_state(job, "JOB_CANCELLED")

    def test_shows_who_stands_still(self):
        """A stopped rank is seen where one looks first, and no more once it moves."""
        self.start_daemon("--http", "127.0.0.1:0")
        job = self.submit("--set", "training.steps=10000000", "--set", "runtime.deadline_seconds=600")
        self.open_browser()
        self.browser.open(self.link())
        self.reach(job, 20)
        self.shows(f".row[data-job='{job}'] .chip", "running")
        self.browser.click(f".row[data-job='{job}']")
        self.shows("h1 .chip", "running")
        victim = self.rank(job, 1)
        os.kill(victim, signal.SIGSTOP)
        self.addCleanup(self.go_on, victim)
        self.shows(f".row[data-job='{job}'] .chip[data-state=stalled]", "stalled")
        self.shows("h1 .chip[data-state=stalled]", "stalled")
        self.shows(".banner[data-level=warn]", "is stopped")
        self.shows(f".row[data-job='{job}'] .note", "is stopped")
        self.shows("[data-tile='Time left'] .value", "stalled")
        self.keep_picture("stalled")
        self.go_on(victim)
        self.shows("h1 .chip", "running")
        until(lambda: self.browser.count(".banner") == 0, "nothing is told of it", self.told)
        self.shows(f".row[data-job='{job}'] .note", "step")
        self.assertEqual(self.browser.complaints(), [])
        self.ask("cancel", job)
        self.reach_state(job, "JOB_CANCELLED")

    def test_shows_a_node_that_does_not_come_back(self):
        self.start_daemon("--http", "127.0.0.1:0")
        job = self.submit("--set", "training.steps=10000000")
        self.reach(job, 5)
        self.daemon.kill()
        self.daemon.wait()
        for pid in self.agents():
            os.kill(pid, signal.SIGKILL)
        self.start_daemon("--http", "127.0.0.1:0", "--no-agent")
        self.open_browser()
        self.browser.open(self.link())
        self.shows(".node[data-node=n1] .state", "has not come back")
        self.shows(".node[data-node=n1]", "2 / ? CPUs")
        self.shows(".node[data-node=n1] .on", "tiny")
        self.assertEqual(self.browser.complaints(), [])
        self.daemon.terminate()
        self.daemon.wait()
        self.start_daemon("--http", "127.0.0.1:0")
        self.ask("cancel", job)
        self.reach_state(job, "JOB_CANCELLED")

    @staticmethod
    def go_on(pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def test_says_where_it_is_not(self):
        self.start_daemon()
        self.assertIn("--http", self.ask("dashboard", code=2))
        self.assertNotIn("http", read(f"{self.folder}/daemon.log").partition("ready:")[2].partition("\n")[0])


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
