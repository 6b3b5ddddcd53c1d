"""A server whose model says what a test wrote: the real server, engine, tokenizer, template and dialect around scripts
(tests/scripted/script.h). Standard library only.

    class Weather(scripted.Case):
        FAMILY = "qwen3"                                          # template and markers: FAMILIES
        SCRIPTS = {"sunny": "It is sunny.", "tool": [call("f", x=1)]}
        OPTIONS = ["--max-num-seqs", "1"]                         # of barg serve

        def test_it(self):
            status, headers, answer = self.post("/v1/chat/completions", {"messages": say("sunny")})

A prompt names its script by `[[script NAME]]`, the last one in it counts: say(NAME) makes such messages. A script is text,
a list of pieces, or an object (script.h). The server is started once a class, on a free port, and ends with it; its log
is printed when a test failed. BARG_TEST_SCRIPTED_SERVER is its path."""

import faulthandler
import http.client
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATA = ROOT / "tests" / "data"
PROGRAM = pathlib.Path(os.environ.get("BARG_TEST_SCRIPTED_SERVER") or ROOT / "build" / "tests" / "barg_scripted_server")
START_S, CALL_S, STOP_S, MODULE_S = 60, 30, 4, 240

faulthandler.dump_traceback_later(MODULE_S, exit=True)  # a hang ends with the place where it hangs


def plain(text):
    """A piece: the characters of markers without their tokens, as a model repeats what a user typed."""
    return {"plain": text}


def token(text):
    """A piece: one added token."""
    return {"token": text}


def raw(*values):
    """Pieces: tokens of single bytes, which need not be characters."""
    return [{"byte": value} for value in values]


def say(*names, role="user", text=""):
    """Messages that make the model say script `names[-1]`."""
    return [{"role": role, "content": f"{text}[[script {name}]]"} for name in names]


# ---- families: a template, the tokens its tokenizer adds, and how its model calls tools


class Family:
    def __init__(self, template, tokens, calls, eos="<|im_end|>", bos=None, special=(), call_end=None):
        self.template, self.tokens, self.calls, self.eos, self.bos = template, tokens, calls, eos, bos
        self.special = set(special)  # of `tokens`: those hidden from text, as published tokenizers mark them
        self.call_end = call_end     # the token that ends an answer with calls, if it is another than eos

    def script(self, *calls, before="", after=""):
        """A script that says `before`, calls tools [(name, {arguments})...], says `after`."""
        out = {"pieces": [before, self.calls(calls), after]}
        return out if self.call_end is None else {**out, "end": self.call_end}


def _hermes(calls):
    return "\n".join(f"<tool_call>\n{json.dumps({'name': n, 'arguments': a}, ensure_ascii=False)}\n</tool_call>" for n, a in calls)


def _qwen3_coder(calls):
    def value(v):
        return v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)
    return "\n".join(f"<tool_call>\n<function={n}>\n" + "".join(f"<parameter={k}>\n{value(v)}\n</parameter>\n" for k, v in a.items())
                     + "</function>\n</tool_call>" for n, a in calls)


def _llama3_json(calls):
    return "; ".join(json.dumps({"name": n, "parameters": a}, ensure_ascii=False) for n, a in calls)


def _mistral(calls):
    return "[TOOL_CALLS]" + json.dumps([{"name": n, "arguments": a, "id": f"abcdefgh{i}"} for i, (n, a) in enumerate(calls)],
                                       ensure_ascii=False)


def _deepseek_v31(calls):
    return "<｜tool▁calls▁begin｜>" + "".join(
        f"<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{json.dumps(a, ensure_ascii=False)}<｜tool▁call▁end｜>" for n, a in calls) + "<｜tool▁calls▁end｜>"


def _kimi(calls):
    return "<|tool_calls_section_begin|>" + "".join(
        f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{json.dumps(a, ensure_ascii=False)}<|tool_call_end|>"
        for i, (n, a) in enumerate(calls)) + "<|tool_calls_section_end|>"


def _glm(calls):
    def value(v):
        return v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)
    return "\n".join(f"<tool_call>{n}\n" + "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{value(v)}</arg_value>\n" for k, v in a.items())
                     + "</tool_call>" for n, a in calls)


def _harmony(calls):  # the model stops after one call
    return "<|end|><|start|>assistant".join(
        f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{json.dumps(a, ensure_ascii=False)}" for n, a in calls)


QWEN = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
THINK = ["<think>", "</think>"]
KIMI = ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"]
DEEPSEEK = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁output▁begin｜>",
            "<｜tool▁output▁end｜>"]
MISTRAL = ["<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
           "[/TOOL_RESULTS]"]
LLAMA = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"]
HARMONY = ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>"]
GLM = ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<arg_key>", "</arg_key>", "<arg_value>",
       "</arg_value>"]

PUBLISHED, OWN = DATA / "templates", HERE / "templates"
FAMILIES = {
    "hermes": Family(PUBLISHED / "Qwen-Qwen2.5-7B-Instruct.jinja", QWEN, _hermes),
    "qwen3": Family(PUBLISHED / "Qwen-Qwen3-0.6B.jinja", QWEN + THINK, _hermes),
    "qwen3_coder": Family(PUBLISHED / "Qwen3-Coder.jinja", QWEN, _qwen3_coder),
    "llama3_json": Family(OWN / "llama3_json.jinja", LLAMA, _llama3_json, eos="<|eot_id|>", bos="<|begin_of_text|>", special=LLAMA),
    "mistral": Family(PUBLISHED / "mistralai-Mistral-Nemo-Instruct-2407.jinja", MISTRAL, _mistral, eos="</s>", bos="<s>",
                      special=MISTRAL),
    "deepseek_v31": Family(PUBLISHED / "deepseek-ai-DeepSeek-V3.1.jinja", DEEPSEEK + THINK, _deepseek_v31,
                           eos="<｜end▁of▁sentence｜>", bos="<｜begin▁of▁sentence｜>", special=DEEPSEEK[:4]),
    "kimi_k2": Family(PUBLISHED / "Kimi-K2-Instruct.jinja", KIMI, _kimi, special=KIMI[:4]),
    "glm45": Family(PUBLISHED / "GLM-4.6.jinja", QWEN + THINK + GLM, _glm, eos="<|user|>", special=GLM[:6], call_end="<|observation|>"),
    "harmony": Family(OWN / "harmony.jinja", HARMONY, _harmony, eos="<|return|>", special=HARMONY, call_end="<|call|>"),
}


def call(name, family="qwen3", **arguments):
    """The text of one call, as this family writes it."""
    return FAMILIES[family].calls([(name, arguments)])


def write_tokenizer(directory, family):
    """The small tokenizer of tests/data with the family's tokens added."""
    tokenizer = json.loads((DATA / "models/smollm2/tokenizer.json").read_text())
    config = json.loads((DATA / "models/smollm2/tokenizer_config.json").read_text())
    known = {t["content"] for t in tokenizer["added_tokens"]}
    next_id = 1 + max([t["id"] for t in tokenizer["added_tokens"]] + list(tokenizer["model"]["vocab"].values()))
    for text in family.tokens:
        if text not in known:
            tokenizer["added_tokens"].append({"id": next_id, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                                              "normalized": False, "special": text in family.special})
            next_id += 1
    if family.eos != "<|im_end|>":  # else the tokenizer's own ChatML tokens would end answers too
        tokenizer["added_tokens"] = [t if t["content"] not in ("<|im_end|>", "<|endoftext|>") else {**t, "special": False}
                                     for t in tokenizer["added_tokens"]]
    config.pop("added_tokens_decoder", None)
    config.pop("chat_template", None)
    config.update(eos_token=family.eos, bos_token=family.bos)
    ids = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    ends = [ids[text] for text in (family.eos, family.call_end) if text]
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


class Server:
    """with Server({"hi": "Hello."}, family="qwen3") as s: s.url"""

    def __init__(self, scripts, family="qwen3", template=None, dialect=None, reasoning=None, options=()):
        if not PROGRAM.is_file():
            raise unittest.SkipTest(f"skipped: {PROGRAM} is not built")
        family = FAMILIES[family]
        self.key = options[list(options).index("--api-key") + 1] if "--api-key" in options else ""
        self.folder = tempfile.TemporaryDirectory()
        directory = pathlib.Path(self.folder.name)
        write_tokenizer(directory, family)
        scripts = {name: {"pieces": s} if isinstance(s, list) else s for name, s in scripts.items()}
        (directory / "scripts.json").write_text(json.dumps(scripts))
        command = [PROGRAM, "--tokenizer", directory, "--scripts", directory / "scripts.json", "--port", "0",
                   "--chat-template", template or family.template, *options]
        for flag, value in (("--dialect", dialect), ("--reasoning", reasoning)):
            command += [flag, value] if value else []
        self.log = open(directory / "log", "w+b")
        self.process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL)
        self.port = self._read_port()

    url = property(lambda self: f"http://127.0.0.1:{self.port}")

    def _read_port(self):
        if select.select([self.process.stdout], [], [], START_S)[0]:
            found = re.match(rb"listening on (\d+)", self.process.stdout.readline())
            if found:
                return int(found[1])
        self.process.kill()
        self.process.wait()
        raise RuntimeError("the scripted server does not start:\n" + self.output())

    def output(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def request(self, method, path, body=None, headers=None, timeout=CALL_S):
        """(status, headers with small names, bytes)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            payload = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            payload = payload.encode() if isinstance(payload, str) else payload
            connection.request(method, path, payload, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def post(self, path, body, headers=None):
        """(status, headers, JSON)"""
        status, head, raw = self.request("POST", path, body, headers)
        return status, head, json.loads(raw) if raw else None

    def get(self, path, headers=None):
        status, head, raw = self.request("GET", path, headers=headers)
        return status, head, json.loads(raw) if raw and "json" in head.get("content-type", "") else raw.decode()

    def stream(self, path, body, headers=None):
        """(status, headers, [(event or None, JSON or "[DONE]")...]) of a streamed answer, comments left out."""
        status, head, raw = self.request("POST", path, {**body, "stream": True}, headers)
        return status, head, list(read_events(raw.decode())) if status == 200 else json.loads(raw)

    def metric(self, *names, **labels):
        """Sum over the series of these names that carry these labels, all of one answer of /metrics."""
        text = self.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.key}"})[2].decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.split(r"[{ ]", line, maxsplit=1)[0] in names
                   and all(f'{key}="{value}"' in line for key, value in labels.items()))

    def running(self):
        """Requests running or waiting. One answer tells both: between two, a request may go from one to the other unseen."""
        return self.metric("vllm:num_requests_running", "vllm:num_requests_waiting")

    def fill(self, script):
        """Occupies a server of one sequence and one place in its queue: requests in threads, one running and one waiting."""
        threads = []
        for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            body = {"messages": say(script)}
            threads.append(threading.Thread(target=self.post, args=("/v1/chat/completions", body), daemon=True))
            threads[-1].start()
            wait_until(lambda: self.metric(gauge) == 1, gauge)
        return threads

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(2 * STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.last_words = self.output()[-3000:]
        self.process.stdout.close()
        self.log.close()
        self.folder.cleanup()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def read_events(text):
    """(event or None, JSON or "[DONE]") of each server-sent event."""
    for block in text.split("\n\n"):
        event, data = None, []
        for line in block.split("\n"):
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
        if data:
            joined = "\n".join(data)
            yield event, joined if joined == "[DONE]" else json.loads(joined)


def wait_until(condition, what, timeout=CALL_S):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.01)


class Case(unittest.TestCase):
    """Tests of one scripted server."""
    SCRIPTS, FAMILY, TEMPLATE, DIALECT, REASONING, OPTIONS = {}, "qwen3", None, None, None, ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.SCRIPTS, cls.FAMILY, cls.TEMPLATE, cls.DIALECT, cls.REASONING, cls.OPTIONS)
        cls.addClassCleanup(cls.stop_server)

    @classmethod
    def stop_server(cls):
        """An idle server ends at once; one that does not holds on to a request that is long over."""
        started = time.monotonic()
        status, took = cls.server.stop(), time.monotonic() - started
        if status != 0 or took > STOP_S:
            raise AssertionError(f"the server ended with {status} after {took:.1f} s:\n{cls.server.last_words}")

    url = property(lambda self: self.server.url)

    def run(self, result=None):
        failed = len(result.failures) + len(result.errors) if result else 0
        out = super().run(result)
        if result and len(result.failures) + len(result.errors) > failed and self.server.process.stdout:
            print(f"---- the server's log after {self.id()} (end)\n{self.server.output()[-3000:]}")
        return out

    def post(self, path, body, headers=None):
        return self.server.post(path, body, headers)

    def stream(self, path, body, headers=None):
        return self.server.stream(path, body, headers)

    def get(self, path, headers=None):
        return self.server.get(path, headers)

    def chat(self, script, status=200, headers=None, **fields):
        """The JSON of a chat answer to say(script)."""
        body = {"temperature": 0, "messages": say(script), **fields}
        got, _, answer = self.post("/v1/chat/completions", body, headers)
        self.assertEqual(got, status, answer)
        return answer

    def chat_stream(self, script, **fields):
        """The chunks of a streamed chat answer, [DONE] checked and left out."""
        body = {"temperature": 0, "messages": say(script), **fields}
        status, _, events = self.stream("/v1/chat/completions", body)
        self.assertEqual(status, 200, events)
        self.assertEqual(events[-1], (None, "[DONE]"))
        return [data for _, data in events[:-1]]


def joined(chunks, index=0):
    """A streamed chat choice put together as clients do: {content, reasoning, tool_calls: [(id, name, arguments)], finish,
    logprobs}. Checks what every client relies on."""
    out = {"content": "", "reasoning": "", "tool_calls": [], "finish": None, "logprobs": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            assert "finish_reason" in choice, "every chunk has the key finish_reason"
            assert out["finish"] is None, "nothing follows a finish_reason"
            delta = choice["delta"]
            out["content"] += delta.get("content") or ""
            out["reasoning"] += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls") or []:
                _join_call(out["tool_calls"], piece)
            if choice.get("logprobs"):
                out["logprobs"] += choice["logprobs"]["content"] or []
            if choice["finish_reason"] is not None:
                assert not delta or not any(delta.values()), f"the chunk that finishes carries nothing: {delta}"
            out["finish"] = choice["finish_reason"]
    out["tool_calls"] = [tuple(c) for c in out["tool_calls"]]
    return out


def _join_call(calls, piece):
    index, function = piece["index"], piece.get("function") or {}
    if index == len(calls):
        assert piece["id"] and piece["type"] == "function" and function["name"], f"the first piece of a call names it: {piece}"
        calls.append([piece["id"], function["name"], function.get("arguments", "")])
        return
    assert index == len(calls) - 1, f"calls come one after the other: {piece}"
    assert "id" not in piece and "name" not in function, f"id and name come once: {piece}"
    calls[index][2] += function.get("arguments", "")


def unstreamed(answer, index=0):
    """The same of an unstreamed answer."""
    choice = answer["choices"][index]
    message = choice["message"]
    return {"content": message.get("content") or "", "reasoning": message.get("reasoning_content") or "",
            "tool_calls": [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []],
            "finish": choice["finish_reason"], "logprobs": (choice.get("logprobs") or {}).get("content") or []}


def without_ids(choice):
    """Ids of calls are drawn for each answer."""
    return {**choice, "tool_calls": [(name, arguments) for _, name, arguments in choice["tool_calls"]]}
