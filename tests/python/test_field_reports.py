"""What users of other servers reported, one test a report, named by its symptom; the number is that of our list of 60.
What cannot be seen over HTTP is tested beside the code. Standard library only."""

import contextlib
import json
import re
import threading
import time
import unittest

import scripted
from scripted import FAMILIES, call, joined, plain, raw, say, token, unstreamed, wait_until, without_ids
from wire import Wire, post

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
TEXT = "Green 🍃 leaves: 葉, été; STOP or STO or S."
FAMILY_EMOJI = "👩‍👩‍👧 🇮🇷 ✅"


def function(name, **properties):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TOOLS = [function("weather", city={"type": "string"}, days={"type": "integer"}), function("now"),
         function("write", content={"type": "string"})]
CALL = call("weather", city="Rome", days=2)
LONG = "x" * 300


def strict_json(raw_body):
    """JSON without NaN and infinities."""
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")
    return json.loads(raw_body, parse_constant=refuse)


class Chat(scripted.Case):
    FAMILY = "qwen3"
    SCRIPTS = {
        "text": TEXT, "emoji": FAMILY_EMOJI, "call": CALL, "two": CALL + "\n" + call("weather", city="Oslo"),
        "empty first": call("now") + "\n" + CALL, "unknown": call("nobody", x=1) + "\n" + CALL,
        "long": call("write", content=LONG), "around": ["Before ", CALL], "thought": [token("<think>"), "\nhm\n", token("</think>"), "\n\nYes."],
        "choices": {"choices": [[CALL], ["text"], [call("now") + "\n" + CALL]]},
        "broken bytes": ["a", *raw(0xFF, 0xC3), "b", *raw(0xE8, 0x91)], "rest of a leaf": [*raw(0x83), " and more"],
        "endless": {"pieces": ["on "], "end": None, "delay_ms": 2}, "device": {"pieces": ["one two three"], "fail_after": 2},
        "typed": [plain("<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>")],
    }
    OPTIONS = ["--max-model-len", "4096"]

    def both(self, script, **fields):
        """The answer, after checking that it is the same streamed."""
        plain_answer, streamed = unstreamed(self.chat(script, **fields)), joined(self.chat_stream(script, **fields))
        self.assertEqual(without_ids(streamed), without_ids(plain_answer))
        return plain_answer

    def calls(self, answer):
        return [(name, json.loads(arguments)) for _, name, arguments in answer["tool_calls"]]

    # ---- finish reasons and the shape of streams

    def test_01_tool_call_cut_by_max_tokens_says_length(self):
        for cut in range(4, 24, 3):
            self.assertEqual(self.both("call", tools=TOOLS, max_tokens=cut)["finish"], "length")

    def test_02_stream_with_tools_ends_without_finish_reason(self):
        for script in ("text", "call", "two", "around", "typed", "thought", "unknown"):
            for tools in (None, TOOLS):
                finishes = [c["choices"][0]["finish_reason"] for c in self.chat_stream(script, tools=tools)]
                self.assertEqual(len([f for f in finishes if f is not None]), 1, script)
                self.assertIsNotNone(finishes[-1])

    def test_03_natural_end_says_stop(self):
        self.assertEqual(self.both("text")["finish"], "stop")

    def test_04_finish_reason_key_missing_in_chunks(self):
        for chunk in self.chat_stream("text") + self.chat_stream("two", tools=TOOLS):
            self.assertTrue(all("finish_reason" in choice and "delta" in choice for choice in chunk["choices"]))

    def test_05_finish_reason_rides_on_the_last_tool_delta(self):
        chunks = self.chat_stream("call", tools=TOOLS)
        self.assertEqual((chunks[-1]["choices"][0]["finish_reason"], chunks[-1]["choices"][0]["delta"]), ("tool_calls", {}))

    def test_06_unstreamed_answer_at_the_limit_says_stop(self):
        self.assertEqual(self.both("text", max_tokens=5)["finish"], "length")

    def test_07_and_08_forced_tool_choice_differs_when_streamed(self):
        for choice in ("required", {"type": "function", "function": {"name": "now"}}):
            answer = self.both("call", tools=TOOLS, tool_choice=choice, max_tokens=300)
            self.assertTrue(answer["tool_calls"])
            self.assertFalse(answer["content"])
            if choice != "required":
                self.assertEqual([name for name, _ in self.calls(answer)], ["now"])

    # ---- text

    def test_09_several_stop_strings_duplicate_text(self):
        for stop in (["STOP", "STORE", "S."], ["or STOX", "or STO or"], ["zzz", "leaves:"]):
            at = min(TEXT.find(s) for s in stop if s in TEXT)
            answer = self.both("text", stop=stop)
            self.assertEqual((answer["content"], answer["finish"]), (TEXT[:at], "stop"))

    def test_10_stop_string_of_many_tokens_is_ignored(self):
        self.assertEqual(self.both("text", stop="leaves: 葉, é")["content"], "Green 🍃 ")

    def test_11_invalid_bytes_close_the_connection(self):
        answer = self.both("broken bytes", logprobs=True, top_logprobs=1)
        self.assertTrue(answer["content"].startswith("a\ufffd"))
        self.assertIn("b", answer["content"])
        self.assertIn([0xFF], [e["bytes"] for e in answer["logprobs"]])

    def test_12_characters_break_behind_a_partial_stop_match(self):
        self.assertEqual(self.both("text", stop=["Green 🍂", "🍃 leaf", "葉,,"])["content"], TEXT)

    def test_13_prompt_ids_that_end_inside_a_character_leak_the_prompt(self):
        _, _, answer = self.post("/tokenize", {"prompt": "[[script rest of a leaf]] 🍃"})
        ids = answer["tokens"][:-1]
        body = {"prompt": ids, "max_tokens": 12, "temperature": 0}
        text = self.post(COMPLETIONS, body)[2]["choices"][0]["text"]
        self.assertNotIn("script", text)
        self.assertTrue(text.endswith(" and more"), text)
        _, _, events = self.stream(COMPLETIONS, body)
        self.assertEqual("".join(e["choices"][0]["text"] for _, e in events[:-1]), text)

    def test_14_replacement_characters_for_split_emoji(self):
        for chunk in self.chat_stream("emoji"):
            self.assertNotIn("\ufffd", json.dumps(chunk, ensure_ascii=False))
        self.assertEqual(self.both("emoji")["content"], FAMILY_EMOJI)

    def test_15_a_partial_character_exceeds_the_limit(self):
        for limit in range(1, 9):
            self.assertEqual(self.chat("emoji", max_tokens=limit)["usage"]["completion_tokens"], limit)
            self.both("emoji", max_tokens=limit)

    # ---- tool calls

    def test_16_17_two_calls_lose_arguments(self):
        self.assertEqual(self.calls(self.both("two", tools=TOOLS)), [("weather", {"city": "Rome", "days": 2}), ("weather", {"city": "Oslo"})])

    def test_18_an_unknown_tool_discards_its_neighbours(self):
        self.assertEqual(self.calls(self.both("unknown", tools=TOOLS)), [("nobody", {"x": 1}), ("weather", {"city": "Rome", "days": 2})])

    def test_19_a_call_behind_one_without_arguments_loses_its_own(self):
        self.assertEqual(self.calls(self.both("empty first", tools=TOOLS)), [("now", {}), ("weather", {"city": "Rome", "days": 2})])

    def test_21_parallel_calls_have_index_0_and_repeat_ids(self):
        answer = joined(self.chat_stream("two", tools=TOOLS))  # which refuses both
        self.assertEqual(len({identity for identity, _, _ in answer["tool_calls"]}), 2)

    def test_22_arguments_come_in_one_lump(self):
        pieces = [p for c in self.chat_stream("long", tools=TOOLS) for p in c["choices"][0]["delta"].get("tool_calls") or []]
        self.assertGreater(len(pieces), 20)
        self.assertTrue(all(isinstance(p["function"].get("arguments", ""), str) for p in pieces))
        self.assertEqual(self.calls(self.both("long", tools=TOOLS)), [("write", {"content": LONG})])

    def test_23_choices_share_a_parser(self):
        fields = {"tools": TOOLS, "n": 3}
        answer, chunks = self.chat("choices", **fields), self.chat_stream("choices", **fields)
        for k, wanted in enumerate([["weather"], [], ["now", "weather"]]):
            self.assertEqual([name for _, name, _ in unstreamed(answer, k)["tool_calls"]], wanted)
            self.assertEqual(without_ids(joined(chunks, k)), without_ids(unstreamed(answer, k)))

    def test_25_empty_tools_are_refused(self):
        for tools in ([], None):
            self.assertEqual(self.both("text", tools=tools)["content"], TEXT)

    def test_26_history_with_empty_calls_and_null_content_is_refused(self):
        history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "tool_calls": []},
                   {"role": "user", "content": "Weather?"},
                   {"role": "assistant", "content": None, "reasoning_content": "Look.", "tool_calls": [
                       {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                       {"id": "b", "type": "function", "function": {"name": "weather", "arguments": ""}}]},
                   {"role": "tool", "tool_call_id": "a", "content": "noon"}, {"role": "tool", "tool_call_id": "b", "content": ""},
                   {"role": "assistant", "content": "Noon.", "tool_calls": None, "refusal": None}, *say("text")]
        self.assertEqual(self.both("text", messages=history, tools=TOOLS)["content"], TEXT)

    def test_27_arguments_of_the_history_are_quoted_twice(self):
        def explained(arguments):
            history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": arguments}}]},
                {"role": "tool", "tool_call_id": "a", "content": "20"}]
            return self.chat("text", messages=history, tools=TOOLS)["usage"]["prompt_tokens"]
        self.assertEqual(explained('{"city": "Rome", "days": 2}'), explained({"city": "Rome", "days": 2}))

    def test_28_system_message_must_be_at_the_beginning(self):
        history = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."},
                   *say("text")]
        self.assertEqual(self.both("text", messages=history)["content"], TEXT)

    # ---- reasoning

    def test_30_reasoning_under_one_name_only(self):
        message = self.chat("thought")["choices"][0]["message"]
        self.assertEqual((message["reasoning"].strip(), message["reasoning_content"].strip()), ("hm", "hm"))
        deltas = [c["choices"][0]["delta"] for c in self.chat_stream("thought")]
        for name in ("reasoning", "reasoning_content"):
            self.assertEqual("".join(d.get(name) or "" for d in deltas).strip(), "hm")

        def tokens(**thought):
            history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hm.", **thought, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "noon"}]
            return self.chat("text", messages=history, tools=TOOLS)["usage"]["prompt_tokens"]
        self.assertEqual(tokens(reasoning="I think so."), tokens(reasoning_content="I think so."))
        self.assertGreater(tokens(reasoning="I think so."), tokens())

    # ---- usage and log-probabilities

    def test_31_streamed_usage_is_wrong(self):
        for script in ("text", "two", "thought"):
            usage = self.chat(script, tools=TOOLS)["usage"]
            streamed = self.chat_stream(script, tools=TOOLS, stream_options={"include_usage": True})[-1]["usage"]
            for one in (usage, streamed):
                one.pop("prompt_tokens_details")  # the second finds the prompt in the cache
            self.assertEqual(streamed, usage)

    def test_33_details_of_usage_are_missing(self):
        usage = self.chat("thought")["usage"]
        self.assertGreater(usage["completion_tokens_details"]["reasoning_tokens"], 0)
        self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], 0)

    def test_34_logprobs_true_alone_and_logprobs_0(self):
        content = self.both("text", logprobs=True)["logprobs"]
        self.assertTrue(content and all(sorted(e) == ["bytes", "logprob", "token", "top_logprobs"] for e in content))
        legacy = self.post(COMPLETIONS, {"prompt": "[[script text]]", "logprobs": 0})[2]["choices"][0]["logprobs"]
        self.assertTrue(legacy["tokens"] and len(legacy["tokens"]) == len(legacy["token_logprobs"]))

    def test_35_text_offset_with_echo_in_a_stream(self):
        body = {"prompt": "[[script text]] Tell.", "max_tokens": 30, "temperature": 0, "echo": True, "logprobs": 1}
        want = self.post(COMPLETIONS, body)[2]["choices"][0]["logprobs"]["text_offset"]
        got = [o for _, e in self.stream(COMPLETIONS, body)[2][:-1] for c in e["choices"] for o in (c["logprobs"] or {}).get("text_offset", [])]
        self.assertEqual((got, got), (want, sorted(want)))

    def test_36_infinities_are_no_json(self):
        for fields in ({"banned_token_ids": [5, 6]}, {"allowed_token_ids": [5, 6]}, {"logit_bias": {"5": -100, "6": 100}}):
            body = {"messages": say("text"), "logprobs": True, "top_logprobs": 20, "max_tokens": 4, **fields}
            status, _, answer = self.server.request("POST", CHAT, body)
            self.assertEqual(status, 200, answer)
            strict_json(answer)

    def test_37_many_logprobs_fail_on_byte_tokens(self):
        for entry in self.both("emoji", logprobs=True, top_logprobs=20)["logprobs"]:
            self.assertEqual(len(entry["top_logprobs"]), 20)
            for top in entry["top_logprobs"]:
                self.assertIsInstance(top["token"], str)
                self.assertEqual(bytes(top["bytes"]).decode(errors="replace") if top["bytes"] else top["token"], top["token"])

    # ---- limits

    def test_38_a_large_cap_is_refused(self):
        for field in ("max_tokens", "max_completion_tokens"):
            status, headers, answer = self.post(CHAT, {"messages": say("text"), field: 65535})
            self.assertEqual((status, answer["choices"][0]["finish_reason"]), (200, "stop"))
            self.assertEqual(int(headers["x-barg-max-tokens"]), 4096 - answer["usage"]["prompt_tokens"])

    def test_39_40_too_long_a_prompt_is_cut_or_its_error_shows_another_length(self):
        answer = self.chat("text", status=400, messages=[{"role": "user", "content": "leaf " * 9000}])
        self.assertEqual(answer["error"]["code"], "context_length_exceeded")
        self.assertIn(f"{self.get('/v1/models')[2]['data'][0]['max_model_len']} tokens", answer["error"]["message"])

    def test_41_the_cap_and_the_context_are_confused(self):
        self.assertEqual(self.chat("text", max_tokens=3)["choices"][0]["finish_reason"], "length")

    def test_45_generation_goes_on_after_a_disconnect(self):
        def aborted():
            return self.server.metric("vllm:request_success_total", finished_reason="abort")
        for stream in (False, True):
            before = aborted()
            with Wire(self.url) as wire:
                wire.send(post(CHAT, {"messages": say("endless"), "stream": stream}))
                wait_until(lambda: self.server.running() == 1, "it runs")
            wait_until(lambda: self.server.running() == 0, "it ends")
            self.assertEqual(aborted(), before + 1)

    def test_49_stop_by_id_does_not_reach_a_resumed_stream(self):
        _, _, answer = self.post(RESPONSES, {"input": "[[script endless]]", "background": True, "max_output_tokens": 2000})
        wait_until(lambda: self.server.running() == 1, "it runs")
        self.assertEqual(self.post(f"{RESPONSES}/{answer['id']}/cancel", None)[2]["status"], "cancelled")
        wait_until(lambda: self.server.running() == 0, "it ends")
        # The same with two readers that came later; both are told.
        with Wire(self.url) as first, Wire(self.url) as resumed:
            first.send(post(RESPONSES, {"input": "[[script endless]]", "background": True, "stream": True}))
            ident = re.search(r'"id":"(resp_\w+)"', first.until(b"response.output_text.delta"))[1]
            resumed.send(f"GET {RESPONSES}/{ident}?stream=true&starting_after=4 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            resumed.until(b"response.output_text.delta")
            self.assertEqual(self.post(f"{RESPONSES}/{ident}/cancel", None)[2]["status"], "cancelled")
            for reader in (first, resumed):
                self.assertIn('"status":"cancelled"', reader.until(b"\r\n0\r\n\r\n"))
        wait_until(lambda: self.server.running() == 0, "it ends")

    # ---- structured output: enforced or refused, never ignored

    def test_52_what_is_not_supported_is_not_named(self):
        for path, fields, param in (
                (CHAT, {"modalities": ["audio"]}, "modalities"), (CHAT, {"bad_words": ["x"]}, "bad_words"), (CHAT, {"stop_regex": "x+"}, "stop_regex"),
                (CHAT, {"chat_template": "x"}, "chat_template"), (CHAT, {"use_beam_search": True}, "use_beam_search"), (CHAT, {"best_of": 2}, "best_of"),
                (CHAT, {"truncate_prompt_tokens": 5}, "truncate_prompt_tokens"), (RESPONSES, {"conversation": "conv_1"}, "conversation"),
                (RESPONSES, {"prompt": {"id": "p"}}, "prompt")):
            ask = {"input": "[[script text]]"} if path == RESPONSES else {"messages": say("text")}
            status, _, answer = self.post(path, {**ask, **fields})
            self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]), (400, "unsupported_parameter", param))
            self.assertIn(param, answer["error"]["message"], "people read the message")

    def test_51_53_54_constraints_are_ignored_in_silence(self):
        small = {"type": "integer", "minimum": 0, "maximum": 9}
        schema = {"type": "object", "properties": {"a": small, "b": small}, "allOf": [{"required": ["a"]}, {"required": ["b"]}],
                  "additionalProperties": False}
        for fields in ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": False, "schema": schema}}},
                       {"response_format": {"type": "json_object", "schema": schema}}, {"guided_json": schema}):
            content = self.both("text", max_tokens=200, **fields)["content"]
            self.assertEqual(set(json.loads(content)), {"a", "b"}, fields)
        self.assertIsInstance(json.loads(self.both("text", max_tokens=80, response_format={"type": "json_object"})["content"]), dict)
        for fields, wanted in (({"guided_regex": "a{2,4}b"}, r"a{2,4}b"), ({"guided_choice": ["left", "right"]}, "left|right"),
                               ({"structured_outputs": {"regex": "a{2,4}"}}, "a{2,4}"), ({"grammar": 'root ::= "x" [0-9]{2}'}, "x[0-9]{2}")):
            self.assertRegex(self.both("text", **fields)["content"], f"^({wanted})$")
        odd = {"type": "object", "properties": {"p": {"type": "string", "pattern": "(?!x)y"}}}
        for stream in (False, True):
            answer = self.chat("text", status=400, stream=stream, guided_json=odd)
            self.assertEqual((answer["error"]["code"], answer["error"]["param"]), ("unsupported_parameter", "guided_json"))
            self.assertIn("#/properties/p", answer["error"]["message"])
            self.assertIn("pattern", answer["error"]["message"])

    # ---- errors

    def test_59_errors_in_a_stream_without_a_message(self):
        _, _, events = self.stream(CHAT, {"messages": say("device")})
        error = events[-2][1]["error"]
        self.assertTrue(error["message"] and error["code"] and error["type"])

    def test_60_mistakes_of_users_are_500(self):
        bad = [[], 5, "x", None, {"role": "user"}, [5], [{}], [{"role": 5}], [{"role": "user", "content": 5}], [{"role": "tool", "content": {}}],
               [{"role": "assistant", "tool_calls": "x"}], [{"role": "assistant", "tool_calls": [{"function": {"name": 5}}]}]]
        for messages in bad:
            status, _, answer = self.post(CHAT, {"messages": messages})
            self.assertEqual(status, 400, messages)
            self.assertIn("messages", answer["error"]["param"])
        for tools in (5, [5], [{}], [{"type": "function"}], [{"type": "function", "function": {"name": ""}}],
                      [{"type": "function", "function": {"name": "f", "parameters": 5}}]):
            status, _, answer = self.post(CHAT, {"messages": say("text"), "tools": tools})
            self.assertEqual(status, 400, tools)
            self.assertIn("tools", answer["error"]["param"])


class Context(scripted.Case):
    SCRIPTS = {"endless": {"pieces": ["on and "], "end": None}}
    OPTIONS = ["--max-model-len", "256"]

    def test_42_without_max_tokens_it_never_ends(self):
        answer = self.chat("endless")
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"]["total_tokens"], 256)


class Qwen3Coder(scripted.Case):
    FAMILY = "qwen3_coder"
    SCRIPTS = {
        "twice": FAMILIES["qwen3_coder"].calls([("weather", {"city": "Rome", "days": 2}), ("weather", {"city": "12", "days": "many"})]),
        "closing": [FAMILIES["qwen3_coder"].calls([("write", {"content": "a </parameter> b"})])],
    }

    def test_20_same_tool_twice_and_closing_tags_in_values(self):
        for script, wanted in (("twice", [("weather", {"city": "Rome", "days": 2}), ("weather", {"city": "12", "days": "many"})]),
                               ("closing", [("write", {"content": "a </parameter> b"})])):
            answers = unstreamed(self.chat(script, tools=TOOLS)), joined(self.chat_stream(script, tools=TOOLS))
            for answer in answers:
                self.assertEqual([(name, json.loads(arguments)) for _, name, arguments in answer["tool_calls"]], wanted)


class Harmony(scripted.Case):
    FAMILY = "harmony"
    SCRIPTS = {"call": {"pieces": ["<|channel|>analysis<|message|>Look.<|end|><|start|>assistant",
                                   FAMILIES["harmony"].calls([("weather", {"city": "Rome"})])], "end": "<|call|>"}}

    def test_24_streamed_calls_fail_at_random(self):
        wanted = without_ids(unstreamed(self.chat("call", tools=TOOLS)))
        self.assertEqual([(n, json.loads(a)) for n, a in wanted["tool_calls"]], [("weather", {"city": "Rome"})])
        self.assertEqual((wanted["reasoning"], wanted["finish"]), ("Look.", "tool_calls"))
        for _ in range(20):
            self.assertEqual(without_ids(joined(self.chat_stream("call", tools=TOOLS))), wanted)


class Refusing(scripted.Case):
    TEMPLATE = scripted.HERE / "templates" / "strict.jinja"

    def test_29_a_template_that_refuses_is_not_an_answer(self):
        answer = self.chat("default", status=400, messages=[{"role": "user", "content": "A poem, please"}])
        self.assertIn("This model writes no poems.", answer["error"]["message"])
        self.assertEqual(answer["error"]["param"], "messages")
        self.chat("default")


class KeepAlive(scripted.Case):
    SCRIPTS = {"slow": {"pieces": ["late"], "first_delay_ms": 500}}
    OPTIONS = ["--sse-ping", "0.1"]

    def raw_stream(self, path, body):
        status, _, answer = self.server.request("POST", path, {**body, "stream": True})
        self.assertEqual(status, 200, answer)
        return answer.decode()

    def test_46_silence_in_a_long_prefill_chat(self):
        self.assertIn("\n: ", "\n" + self.raw_stream(CHAT, {"messages": say("slow")}))

    def test_46_silence_in_a_long_prefill_responses(self):
        self.assertIn("\n: ", "\n" + self.raw_stream(RESPONSES, {"input": "[[script slow]]"}))

    def test_46_silence_in_a_long_prefill_messages(self):
        self.assertIn("event: ping", self.raw_stream(MESSAGES, {"model": "scripted", "max_tokens": 9, "messages": say("slow")}))


class Queue(scripted.Case):
    SCRIPTS = {"slow": {"pieces": ["one two three four five"], "delay_ms": 30}}
    OPTIONS = ["--max-num-seqs", "1", "--max-num-queued-reqs", "1"]

    def test_47_a_queue_without_end(self):
        threads = self.server.fill("slow")
        for path, body in ((CHAT, {"messages": say("slow")}), (COMPLETIONS, {"prompt": "[[script slow]]"}),
                           (RESPONSES, {"input": "[[script slow]]"}), (MESSAGES, {"model": "scripted", "max_tokens": 9, "messages": say("slow")})):
            status, headers, answer = self.post(path, body)
            self.assertEqual(status, 429, (path, answer))
            self.assertGreater(int(headers["retry-after"]), 0)
        for thread in threads:
            thread.join(scripted.CALL_S)


class Busy(scripted.Case):
    """Nobody waits for another's prompt."""
    FAMILY = "qwen3"
    SCRIPTS = {"text": TEXT, "endless": {"pieces": ["on "], "end": None, "delay_ms": 2}}
    OPTIONS = ["--max-model-len", "16384", "--max-num-batched-tokens", "64"]
    BODY = "leaf and " * 550_000  # 5 MB
    PATIENCE_S = 2  # far beyond what a machine in want of time takes for an answer of one packet, far below what was reported

    def timed(self, work):
        started = time.monotonic()
        work()
        return time.monotonic() - started

    def healthy(self):
        for path in ("/health", "/livez", "/readyz"):
            self.assertLess(self.timed(lambda: self.assertEqual(self.get(path)[0], 200)), self.PATIENCE_S, path)

    def test_43_tokenisation_of_5_mb_blocks_the_loop(self):
        took = []
        long = threading.Thread(target=lambda: took.append(self.timed(lambda: self.post("/tokenize", {"prompt": self.BODY}))))
        long.start()
        asked = 0
        while long.is_alive():
            self.healthy()
            self.assertLess(self.timed(lambda: self.chat("text")), self.PATIENCE_S)
            asked += 1
        long.join()
        self.assertGreater(asked, 1, "others were answered in the meantime")
        # A prompt that cannot fit is refused by its length, before that work.
        refusal = self.timed(lambda: self.chat("text", status=400, messages=[{"role": "user", "content": self.BODY}]))
        self.assertLess(refusal, took[0])

    def test_44_health_waits_under_load(self):
        with contextlib.ExitStack() as stack:
            for _ in range(48):
                stack.enter_context(Wire(self.url)).send(post(CHAT, {"messages": say("endless"), "stream": True}))
            wait_until(lambda: self.server.running() == 48, "all run")
            for _ in range(20):
                self.healthy()
        wait_until(lambda: self.server.running() == 0, "they end with their clients")

    def test_48_a_long_prefill_stops_all_others(self):
        with Wire(self.url) as wire:
            wire.send(post(CHAT, {"messages": say("endless"), "stream": True}))
            wire.until(b'"content":"on')
            wire.buffer = b""
            question = [{"role": "user", "content": "leaf and " * 3000 + "[[script text]]"}]
            tokens = self.chat("text", messages=question, max_tokens=1)["usage"]["prompt_tokens"]
            wire.until(b'"content":"on')  # whatever has come by now
            meanwhile = wire.buffer.count(b'"content":"on')
        self.assertGreater(meanwhile, tokens / 64 / 4, "the stream goes on between the pieces of the prompt")


class Keys(scripted.Case):
    OPTIONS = ["--api-key", "secret"]

    def test_50_the_key_leaves_routes_open(self):
        for method, path in (("POST", CHAT), ("POST", COMPLETIONS), ("POST", RESPONSES), ("POST", "/responses"), ("GET", RESPONSES + "/x"),
                             ("POST", MESSAGES), ("POST", MESSAGES + "/count_tokens"), ("POST", "/v1/explain"), ("GET", "/v1/captures/x"),
                             ("POST", "/tokenize"), ("POST", "/detokenize"), ("GET", "/metrics"), ("GET", "/v1/models"), ("GET", "/version"),
                             ("GET", "/openapi.json"), ("GET", "/nothing")):
            self.assertEqual(self.server.request(method, path, {} if method == "POST" else None)[0], 401, path)
        for path in ("/health", "/livez", "/readyz"):
            self.assertEqual(self.get(path)[0], 200)


class Agents(scripted.Case):
    """Responses and Messages."""
    FAMILY = "qwen3"
    SCRIPTS = {"text": TEXT, "device": {"pieces": ["one two three"], "fail_after": 2}, "thought": [token("<think>"), "\nhm\n", token("</think>"), "\n\nYes."]}

    def responses(self, items, status=200, **fields):
        got, _, answer = self.post(RESPONSES, {"input": items, "temperature": 0, **fields})
        self.assertEqual(got, status, answer)
        return answer

    def messages(self, status=200, **fields):
        got, _, answer = self.post(MESSAGES, {"model": "scripted", "max_tokens": 200, "messages": say("text"), "temperature": 0, **fields})
        self.assertEqual(got, status, answer)
        return answer

    def test_32_responses_count_no_input(self):
        usage = self.responses("[[script thought]]")["usage"]
        self.assertGreater(usage["input_tokens"], 5)
        self.assertGreater(usage["output_tokens_details"]["reasoning_tokens"], 0)
        _, _, events = self.stream(RESPONSES, {"input": "[[script thought]]", "temperature": 0})
        streamed = [d for kind, d in events if kind == "response.completed"][0]["response"]["usage"]
        self.assertEqual((streamed["input_tokens"], streamed["output_tokens"]), (usage["input_tokens"], usage["output_tokens"]))

    def test_33_messages_usage_lacks_the_cache(self):
        system = "You are a leaf. " * 20
        first, again = (self.messages(system=system)["usage"] for _ in range(2))
        self.assertEqual(sum(first[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")),
                         sum(again[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")))
        self.assertGreater(again["cache_read_input_tokens"], again["input_tokens"])

    def test_55_tools_that_are_no_functions_are_refused(self):
        tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "web_search"}, {"type": "image_generation"},
                 {"type": "namespace", "name": "n", "tools": []}, {"type": "local_shell"}, {"type": "made_up_next_year", "x": 1}]
        self.assertEqual(self.responses("[[script text]]", tools=tools)["output"][-1]["content"][0]["text"], TEXT)

    def test_56_outputs_of_calls_in_parts_are_refused(self):
        for output in ("plain", [{"type": "output_text", "text": "parts"}], [{"type": "input_text", "text": "parts"}]):
            self.responses([{"role": "user", "content": "Hi"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                            {"type": "function_call_output", "call_id": "c", "output": output}, *say("text")])

    def test_57_items_of_a_history_are_typed_strictly(self):
        self.responses([{"type": "reasoning", "summary": []}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
                        {"role": "assistant", "content": "Hello"}, {"type": "item_reference", "id": "x"}, {"type": "made_up", "y": {}}, *say("text")])

    def test_58_a_changing_line_in_front_destroys_the_cache(self):
        def cached(n):
            system = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.{n}; cch={n};"}, {"type": "text", "text": "You are a leaf. " * 30}]
            return self.messages(system=system)["usage"]
        cached(1)
        usage = cached(22222)
        self.assertGreater(usage["cache_read_input_tokens"], 4 * usage["input_tokens"])

    def test_59_errors_in_streams_without_a_message(self):
        _, _, events = self.stream(RESPONSES, {"input": "[[script device]]"})
        kind, data = [e for e in events if e[1] != "[DONE]"][-1]
        self.assertIn(kind, ("response.failed", "error"))
        error = data["response"]["error"] if kind == "response.failed" else data
        self.assertTrue(error["message"] and error["code"])
        _, _, events = self.stream(MESSAGES, {"model": "scripted", "max_tokens": 99, "messages": say("device")})
        kind, data = events[-1]
        self.assertEqual((kind, data["type"]), ("error", "error"))
        self.assertTrue(data["error"]["type"] and data["error"]["message"])

    def test_60_mistakes_of_users_are_500(self):
        for items in (5, {}, [5], [{"role": "wizard", "content": "x"}], [{"role": "user", "content": 5}]):
            self.assertTrue(self.responses(items, status=400)["error"]["message"])
        for fields in ({"messages": []}, {"messages": 5}, {"max_tokens": 0}, {"max_tokens": None}, {"messages": [{"role": "user"}]}, {"system": 5},
                       {"tools": 5}, {"tool_choice": "x"}):
            answer = self.messages(status=400, **fields)
            self.assertEqual((answer["type"], answer["error"]["type"]), ("error", "invalid_request_error"), fields)


if __name__ == "__main__":
    unittest.main()
