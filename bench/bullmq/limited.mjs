// BullMQ with its global limiter, for comparison with Forebay's drain: it calls a backend at a
// fixed rate, over several processes.
//
//   node limited.mjs add REDIS_URL N
//     adds N jobs of a 256 byte payload
//   node limited.mjs work REDIS_URL BACKEND_URL MAX DURATION_MS
//     works until SIGTERM; prints "ready" when it has begun
import { Queue, Worker } from 'bullmq';

const [role, redis, ...rest] = process.argv.slice(2);
const connection = { url: redis, maxRetriesPerRequest: null };
const payload = { month: '2026-11', text: 'x'.repeat(227) };

if (role === 'add') {
  const queue = new Queue('bench', { connection });
  for (let left = Number(rest[0]); left > 0; left -= 1000) {
    await queue.addBulk(Array.from({ length: Math.min(left, 1000) }, () => ({
      name: 'job',
      data: payload,
      opts: { removeOnComplete: true, removeOnFail: true },
    })));
  }
  await queue.close();
} else {
  const [backend, max, duration] = rest;
  const worker = new Worker('bench', async (job) => {
    const answer = await fetch(backend, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Forebay-Job-Id': job.id },
      body: JSON.stringify(job.data),
    });
    return answer.json();
  }, { connection, concurrency: 100, limiter: { max: Number(max), duration: Number(duration) } });
  worker.on('error', (error) => console.error(error));
  await worker.waitUntilReady();
  console.log('ready');
  process.on('SIGTERM', async () => {
    await worker.close(true);
    process.exit(0);
  });
}
