"""Readers of published corpora by name. Each takes the folder that holds the original files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from motet.datasets.corpus import Corpus
from motet.datasets.glue import (
    glue_cola,
    glue_mnli,
    glue_mnli_mm,
    glue_mrpc,
    glue_qnli,
    glue_qqp,
    glue_rte,
    glue_sst2,
    glue_stsb,
    glue_wnli,
)
from motet.datasets.instruction_corpora import alpaca, code_alpaca, dolly, p3
from motet.datasets.lm_corpora import reddit, shakespeare, stackoverflow
from motet.datasets.ner_corpora import NER_READERS
from motet.datasets.qa_corpora import mrqa, newsqa, policyqa, squad, squad2, squadshifts, subjqa
from motet.datasets.sentiment_corpora import amazon, imdb, sentiment140, sst2
from motet.datasets.seq2seq_corpora import aeslc, bbc, cnn_dm, cornell, gigaword, msqg, squad_qg
from motet.datasets.topic_corpora import ag_news, twenty_news

CORPUS_READERS: dict[str, Callable[[Path], Corpus]] = {
    "20news": twenty_news,
    "agnews": ag_news,
    "sst2": sst2,
    "imdb": imdb,
    "sentiment140": sentiment140,
    "amazon": amazon,
    **NER_READERS,
    "squad": squad,
    "squad2": squad2,
    "mrqa": mrqa,
    "newsqa": newsqa,
    "squadshifts": squadshifts,
    "subjqa": subjqa,
    "policyqa": policyqa,
    "gigaword": gigaword,
    "cnn-dm": cnn_dm,
    "cornell": cornell,
    "msqg": msqg,
    "aeslc": aeslc,
    "bbc": bbc,
    "squad-qg": squad_qg,
    "shakespeare": shakespeare,
    "reddit": reddit,
    "stackoverflow": stackoverflow,
    "p3": p3,
    "dolly": dolly,
    "alpaca": alpaca,
    "code-alpaca": code_alpaca,
    "glue-cola": glue_cola,
    "glue-sst2": glue_sst2,
    "glue-mrpc": glue_mrpc,
    "glue-stsb": glue_stsb,
    "glue-qqp": glue_qqp,
    "glue-mnli": glue_mnli,
    "glue-mnli-mm": glue_mnli_mm,
    "glue-qnli": glue_qnli,
    "glue-rte": glue_rte,
    "glue-wnli": glue_wnli,
}
