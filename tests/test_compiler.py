"""Threads of the linear algebra."""

from __future__ import annotations

import threadpoolctl

from bsvr_pp.compiler import threads_for


def threads():
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


def test_small_problems_have_one_thread_and_large_ones_what_there_is():
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        with threads_for(1000):
            assert threads() == {1}
        with threads_for(1001):
            assert threads() == before
        assert threads() == before
