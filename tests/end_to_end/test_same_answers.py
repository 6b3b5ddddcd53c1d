"""One question, one answer: 64 requests at once, with shared prefixes, give byte for byte what each gives alone; and
so does a server on every instruction set."""

import concurrent.futures
import unittest

import run
from server import Server

SHARED = [5 + (13 * i) % 500 for i in range(150)]


def question(k):
    prompt = SHARED[: (k % 4) * 37] + [7 + (31 * k + 17 * i) % 500 for i in range(1 + k * 5 % 90)]
    body = {"prompt": prompt, "max_tokens": 12 + k % 9, "seed": k, "logprobs": 3, "return_token_ids": True,
            "ignore_eos": True, "temperature": [0, 0.8, 1.3][k % 3]}
    if k % 5 == 0:
        body.update(top_p=0.9, top_k=30, frequency_penalty=0.5)
    if k % 7 == 0:
        body.update(n=2)
    return body


def answer(k, server=None):
    status, document = (server or run.SERVER).post("/v1/completions", question(k))
    assert status == 200, document
    return [(c["index"], c["text"], c["token_ids"], c["logprobs"], c["finish_reason"]) for c in document["choices"]]


class SameAnswers(unittest.TestCase):
    def test_alone_and_together(self):
        alone = [answer(k) for k in range(64)]
        for _ in range(3):
            with concurrent.futures.ThreadPoolExecutor(64) as pool:
                together = list(pool.map(answer, range(64)))
            for k in range(64):
                self.assertEqual(together[k], alone[k], f"request {k} changed in company")
        self.assertGreater(run.SERVER.metric("vllm:prefix_cache_hits_total"), 0)

    def test_streamed_equals_unstreamed(self):
        import json
        for k in range(0, 24, 3):
            plain = answer(k)
            status, _, raw = run.SERVER.request("POST", "/v1/completions", {**question(k), "stream": True})
            self.assertEqual(status, 200)
            texts, ids, reasons = {}, {}, {}
            events = [line[6:] for line in raw.decode().split("\n") if line.startswith("data: ")]
            self.assertEqual(events[-1], "[DONE]")
            for event in events[:-1]:
                for c in json.loads(event)["choices"]:
                    texts[c["index"]] = texts.get(c["index"], "") + c["text"]
                    ids.setdefault(c["index"], []).extend(c.get("token_ids") or [])
                    reasons[c["index"]] = c["finish_reason"] or reasons.get(c["index"])
            for index, text, token_ids, _, reason in plain:
                self.assertEqual(texts[index], text)
                self.assertEqual(ids[index], token_ids)
                self.assertEqual(reasons[index], reason)

    def test_every_instruction_set(self):
        expected = [answer(k) for k in range(16)]
        for isa, flags in (("scalar", []), ("avx2", []), ("avx512", []), ("avx2", ["--isa", "scalar"])):
            try:
                server = Server(run.BARG, run.MODEL, flags, env={"BARG_ISA": isa})
            except RuntimeError as error:
                self.assertRegex(str(error), f"runtime.isa is {isa}, which this machine cannot run; its best is")
                print(f"skipped: this machine has no {isa}")
                continue
            with server:
                self.assertIn(f"kernels cpu-{'scalar' if flags else isa},", server.output())
                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    got = list(pool.map(lambda k: answer(k, server), range(16)))
                self.assertEqual(got, expected, isa)


if __name__ == "__main__":
    unittest.main()
