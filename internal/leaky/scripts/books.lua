-- books: the counters and the numbers of jobs, at one moment.
-- Returns now, waiting, delayed, in flight, failed jobs that are listed, {field, n, ...} books
return { us(now), call('ZCARD', LINE), call('ZCARD', DELAYED), call('ZCARD', INFLIGHT),
  call('ZCARD', FAILED), call('HGETALL', BOOKS) }
