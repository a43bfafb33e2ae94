"""Small valid folders of published corpora, from which the fuzzer starts."""

from __future__ import annotations

import json
from typing import Any


def _lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


_QUESTION = {"id": "1", "question": "What?", "answers": [{"text": "answer", "answer_start": 3}]}
_SQUAD = json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "an answer.", "qas": [_QUESTION]}]}]})
_SPANS = [{"text": "one", "char_spans": [[2, 4]]}]
_MRQA = _lines({"header": {}}, {"context": "a one", "qas": [{"qid": "1", "question": "?", "detected_answers": _SPANS}]})
_SUBJQA = 'item_id,domain,q_review_id,question,review,human_ans_spans,human_ans_indices\ni,x,a,How?,It is,is,"(3, 5)"\n'
_TWEET = '"0","1","date","NO_QUERY","al","sad"\n"4","2","date","NO_QUERY","bo","glad"\n'
_LEAF = json.dumps({"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[["hello", "you"]]], "y": [0]}}})
_P3 = _lines({"task": "t", "template": "u", "prompt": "p", "completion": "c", "closed": True})
_PAIRS = "index\tsentence1\tsentence2\tlabel\n0\tIt rained.\tIt was wet.\tentailment\n"

# Corpus, and its files. Two files that would be alike share their content.
FOLDERS: list[tuple[str, dict[str, str]]] = [
    ("20news", {"20news-bydate-train/sci.med/1": "From: a\n\none", "20news-bydate-test/sci.med/2": "two"}),
    ("agnews", {"train.csv": '"3","T","He said ""no"""\n', "test.csv": '"1","T","x"\n'}),
    ("sst2", {"train.tsv": "good\t1\nbad\t0\n", "test.tsv": "fine\t1\n"}),
    ("sst2", {"trees/train.txt": "(3 (2 A) (3 good))\n(1 Bad)\n", "trees/test.txt": "(4 (4 Great) (2 one))\n"}),
    ("imdb", {f"aclImdb/{split}/{label}/0_1.txt": "A text." for split in ("train", "test") for label in ("pos", "neg")}),
    ("sentiment140", {"training.1600000.processed.noemoticon.csv": _TWEET * 3}),
    ("amazon", {f"baby/{split}.csv": "idx,label,text\n7,0,so\n" for split in ("train", "test")}),
    ("conll2003", {"train.txt": "EU NNP B-NP B-ORG\nsaid VBD O O\n", "test.txt": "Rome NNP B-NP B-LOC\n"}),
    ("ontonotes", {"onto.train.ner": "Ann\tNNP\t*\tB-PERSON\n", "onto.test.ner": "two\tCD\t*\tB-CARDINAL\n"}),
    ("wnut17", {"wnut17train.conll": "Rome\tB-location\n", "emerging.test.annotated": "x\tO\n"}),
    ("wikiner", {"aij-wikiner-en-wp3": "The|DT|O end|NN|I-LOC\n\nIt|PRP|O is|VBZ|O\n\nAnn|NNP|I-PER\n"}),
    ("crossner", {f"{d}/{s}.txt": "x\tB-person\n" for d in ("ai", "music") for s in ("train", "test")}),
    ("ploner", {f"{c}_{s}.txt": "Ann I-PER\n\n" for c in ("conll03", "bn") for s in ("train", "dev", "test")}),
    ("squad", {"train-v1.1.json": _SQUAD, "dev-v1.1.json": _SQUAD}),
    ("squadshifts", {"new_wiki_v1.0.json": _SQUAD, "nyt_v1.0.json": _SQUAD}),
    ("policyqa", {"dev.json": _SQUAD, "test.json": _SQUAD}),
    ("mrqa", {"train/SQuAD.jsonl": _MRQA, "dev/SQuAD.jsonl": _MRQA}),
    ("newsqa", {"train/NewsQA.jsonl": _MRQA, "dev/NewsQA.jsonl": _MRQA}),
    ("subjqa", {"grocery/train.csv": _SUBJQA, "grocery/test.csv": _SUBJQA}),
    ("gigaword", {"train.article.txt": "a\nb\n", "train.title.txt": "x\ny\n", "valid.article.filter.txt": "v\n",
                  "valid.title.filter.txt": "w\n"}),
    ("cnn-dm", {"cnn/stories/a.story": "One.\n\n@highlight\n\nx\n", "cnn/stories/b.story": "Two.\n\n@highlight\n\ny\n"}),
    ("cnn-dm", {"train.csv": "id,article,highlights\n1,a,x\n", "test.csv": "id,article,highlights\n1,d,z\n"}),
    ("cornell", {"movie_lines.txt": "".join(f"L{i} +++$+++ u0 +++$+++ m0 +++$+++ B +++$+++ hi {i}\n" for i in range(4)),
                 "movie_conversations.txt": "".join(f"u0 +++$+++ u1 +++$+++ m0 +++$+++ ['L{i}', 'L{i + 1}']\n"
                                                    for i in range(3))}),
    ("msqg", {f"{split}.{side}": "x\n" for split in ("train", "dev") for side in ("src", "tgt")}),
    ("aeslc", {f"enron_subject_line/{s}/a-b_1.subject": "Body.\n\n@subject\nHi\n" for s in ("train", "test")}),
    ("bbc", {f"{kind}/{topic}/001.txt": "One.\n\nTwo." for kind in ("News Articles", "Summaries")
             for topic in ("business", "entertainment", "politics", "sport", "tech")}),
    ("squad-qg", {f"{side}-{split}.txt": "a\n" for side in ("src", "tgt") for split in ("train", "test")}),
    ("shakespeare", {"input.txt": "First:\nHear me.\n\nAll:\nSpeak.\n\nFirst:\nNo.\n"}),
    ("reddit", {"train/reddit_0_train.json": _LEAF, "test/reddit_0_test.json": _LEAF}),
    ("reddit", {"comments.csv": 'author,score,body\nann,1,"one,\ntwo"\nbob,2,three\n'}),
    ("stackoverflow", {"train.jsonl": '{"user_id": 7, "tokens": ["how"]}\n', "valid.jsonl": '{"user_id": 7, "text": "t"}\n'}),
    ("p3", {"train.jsonl": _P3, "test.jsonl": _P3}),
    ("glue-cola", {f"CoLA/{split}.tsv": "gj04\t1\t\tIt is.\ncj99\t0\t*\tIs.\n" for split in ("train", "dev")}),
    ("glue-rte", {f"RTE/{split}.tsv": _PAIRS for split in ("train", "dev")}),
    ("glue-stsb", {f"STS-B/{split}.tsv": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
                   "\tscore\n0\tmain-news\tMSRvid\t2012\t1\tnone\tnone\ta\tb\t3.8\n" for split in ("train", "dev")}),
]  # fmt: skip
