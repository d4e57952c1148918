"""Streaming: training data that stays on the CPU, or in files, and is read ahead of the device.

For readers who ask "how does a run train on data that does not fit the device?".  Entry points:

    streamed_feed    `StreamedFeed`: minibatches of a vector env through `data.prefetch + 1` staging
                     buffers, filled by one thread

Plugs in at the group of entry points `morphogen.feeds`: the class of a feed under the name of a
placement.  A run with `data.placement` streamed has a feed for each vector env; auto streams data
above `data.resident_limit_gib`.

A streamed batch is the resident one, bit for bit: indices are computed on the CPU from the same
random streams.  An error of the thread is raised at the batch that it spoils, and closing the feed
ends the thread.
The module loads torch; importing the package does not.
"""
