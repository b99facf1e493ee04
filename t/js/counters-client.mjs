/*
 * counters-client.mjs - examples/counters-client against a running stack; see
 * t/integration/105-counters-client.t, which starts it.
 *
 *   node counters-client.mjs BASE_URL TENANT      token in TOKEN
 *
 * Says "ok - ..." or "not ok - ..." of each behaviour. "do WORD" asks the other
 * side for something and waits for a line on standard input.
 */

import assert from 'node:assert/strict';
import http from 'node:http';
import readline from 'node:readline';
import { CounterError, Counters, Granularity }
  from '../../examples/counters-client/counters.mjs';

const [baseUrl, tenantId] = process.argv.slice(2);
const token = process.env.TOKEN;
const MAX = 2n ** 63n - 1n;

const answers = readline.createInterface({ input: process.stdin })
  [Symbol.asyncIterator]();

async function please(word) {
  console.log(`do ${word}`);
  assert.equal((await answers.next()).value, 'done');
}

const slept = [];
const client = (more = {}) =>
  new Counters({ baseUrl, token, tenantId, ...more });
const counters = client();

async function test(name, body) {
  slept.length = 0;
  try {
    await body();
    console.log(`ok - ${name}`);
  } catch (error) {
    console.log(`not ok - ${name}`);
    console.log(String(error.stack).replace(/^/gm, '# '));
  }
}

/* A write on one perpetual bucket. */
const total = (name, more = {}) => ({
  name,
  durationSeconds: Granularity.PERPETUAL,
  timestamp: new Date(0),
  ...more,
});

const isError = (status, message) => (error) =>
  error instanceof CounterError && error.status === status &&
  (message === undefined || error.message === message);

/*
 * In front of the server: `meddle(request, forward, response)` of each request
 * in turn, then forwards what comes.
 */
async function withProxy(meddlers, body) {
  const left = [...meddlers];
  const proxy = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', async () => {
      const forward = () => fetch(baseUrl + request.url, {
        method: request.method,
        headers: {
          'authorization': request.headers.authorization,
          'content-type': request.headers['content-type'],
          ...(request.headers['idempotency-key'] !== undefined &&
            { 'idempotency-key': request.headers['idempotency-key'] }),
        },
        body: Buffer.concat(parts),
      });
      const meddle = left.shift();
      if (meddle !== undefined) {
        await meddle(request, forward, response);
        return;
      }
      const answer = await forward();
      response.writeHead(answer.status,
        { 'content-type': 'application/json' });
      response.end(await answer.text());
    });
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  try {
    await body(client({
      baseUrl: `http://127.0.0.1:${proxy.address().port}`,
      sleep: async (ms) => { slept.push(ms); },
    }));
  } finally {
    proxy.closeAllConnections?.();
    await new Promise((resolve) => proxy.close(resolve));
  }
}

const isFull = (request, forward, response) => {
  response.writeHead(429, { 'content-type': 'application/json',
    'retry-after': '1' });
  response.end(JSON.stringify({
    error: 'Service overloaded (Queue Full). Please retry later.' }));
};

/* It reaches the server, and its answer is lost on the way back. */
const isUnknown = async (request, forward, response) => {
  await (await forward()).text();
  response.writeHead(504, { 'content-type': 'application/json' });
  response.end(JSON.stringify({
    error: 'It is not known whether the operation was applied',
    outcome: 'unknown' }));
};

const isCut = async (request, forward, response) => {
  await (await forward()).text();
  response.destroy();
};

await test('page views per hour', async () => {
  const noon = new Date('2026-01-05T12:34:56.789Z');
  assert.deepEqual(await counters.trackPageView(noon),
    { net: 1n, added: 1n, subbed: 0n });
  const later = new Date('2026-01-05T12:59:59.999Z');
  assert.equal((await counters.trackPageView(later)).net, 2n);
  const next = new Date('2026-01-05T13:00:00Z');
  assert.equal((await counters.trackPageView(next)).net, 1n);
});

await test('now is a time, too', async () => {
  assert.ok((await counters.trackPageView()).net >= 1n);
});

await test('a rate check', async () => {
  const now = new Date('2026-01-05T12:34:56Z');
  assert.deepEqual(await counters.checkRateLimit(3, now),
    { allowed: true, used: 0n });
  const call = { name: 'api_calls', durationSeconds: Granularity.MINUTE,
    timestamp: now };
  await counters.increment(call);
  await counters.increment({ ...call, timestamp: '2026-01-05T12:34:00Z' });
  assert.deepEqual(await counters.checkRateLimit(3, now),
    { allowed: true, used: 2n });
  await counters.incrementSync(call);
  assert.deepEqual(await counters.checkRateLimit(3, now),
    { allowed: false, used: 3n });
  assert.deepEqual(
    await counters.checkRateLimit(3, new Date('2026-01-05T12:35:00Z')),
    { allowed: true, used: 0n });
});

await test('a week of daily active users', async () => {
  const day = (n) => new Date(Date.UTC(2026, 0, n, 17, 45));
  for (let n = 4; n <= 12; n++) {
    await counters.increment({ name: 'daily_active_users',
      durationSeconds: Granularity.DAY, timestamp: day(n), amount: 10 ** (n - 4) });
  }
  assert.equal(await counters.getDailyActiveUsers(day(5), day(11)), 11111110n);
  assert.equal(await counters.getDailyActiveUsers(day(20), day(27)), 0n);
  await assert.rejects(counters.getDailyActiveUsers(day(11), day(5)),
    isError(400));
});

await test('a monthly quota', async () => {
  const now = new Date();
  assert.equal((await counters.setMonthlyQuota('storage', 500, now)).net, 500n);
  assert.deepEqual(await counters.setMonthlyQuota('storage', 500, now),
    { net: 500n, added: 500n, subbed: 0n });
  assert.deepEqual(await counters.setMonthlyQuota('storage', 200n, now),
    { net: 200n, added: 500n, subbed: 300n });
  const first = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1));
  assert.equal((await counters.get({ name: 'storage_quota',
    durationSeconds: 2592000, timestamp: first })).net, 200n);
});

await test('the largest number, there and back', async () => {
  const at = total('largest');
  assert.equal((await counters.set({ ...at, targetValue: MAX })).net, MAX);
  assert.equal((await counters.get(at)).net, MAX);
  await assert.rejects(counters.increment({ ...at, amount: 1 }), isError(400,
    'Operation resulted in an overflow (exceeded BIGINT capacity)'));
  assert.deepEqual(await counters.decrement({ ...at, amount: MAX }),
    { net: 0n, added: MAX, subbed: MAX });
  assert.equal((await counters.increment(total('large',
    { amount: 2n ** 53n + 1n }))).net, 9007199254740993n);
  assert.throws(() => counters.increment(total('large',
    { amount: 2 ** 53 })), RangeError);
});

await test('a sum beyond 64 bits', async () => {
  for (const n of [1, 2, 3]) {
    await counters.set({ name: 'sums', durationSeconds: 60,
      timestamp: new Date(n * 60000), targetValue: MAX });
  }
  assert.equal((await counters.sumRange({ name: 'sums', durationSeconds: 60,
    startTime: new Date(0), endTime: new Date(600000) })).net, 3n * MAX);
});

await test('a counter is never negative', async () => {
  const at = total('stock');
  await counters.increment({ ...at, amount: 5 });
  await assert.rejects(counters.decrementSync({ ...at, amount: 6 }), isError(
    409, 'Operation failed due to constraint violation'
      + ' (e.g., counter cannot be negative)'));
  assert.deepEqual(await counters.decrement({ ...at, amount: 5 }),
    { net: 0n, added: 5n, subbed: 5n });
});

await test('names are looked at', async () => {
  for (const name of ['user logins', 'api/calls', '\u{1f525}']) {
    await assert.rejects(counters.increment(total(name)), isError(400));
  }
});

await test('another tenant is as none', async () => {
  const stranger = client({ tenantId: 'globex' });
  await assert.rejects(stranger.increment(total('x')), isError(404,
    "Counter doesn't exist for the specified bucket"));
  assert.equal(await stranger.get(total('x')), undefined);
  await assert.rejects(client({ token: 'em_x_y' }).get(total('x')),
    isError(401));
});

await test('a full queue: again, later each time', async () => {
  await withProxy([isFull, isFull], async (patient) => {
    assert.equal((await patient.incrementWithRetry(total('patient'))).net, 1n);
    assert.deepEqual(slept, [1000, 2000]);
  });
  await withProxy([isFull, isFull, isFull], async (patient) => {
    await assert.rejects(patient.incrementWithRetry(total('patient')),
      isError(429, 'Service overloaded (Queue Full). Please retry later.'));
  });
  assert.equal((await counters.get(total('patient'))).net, 1n);
});

await test('an unknown outcome: again with a key only', async () => {
  const keyed = total('unknown', { idempotencyKey: 'unknown-1', amount: 7 });
  await withProxy([isUnknown, isCut], async (patient) => {
    assert.deepEqual(await patient.incrementWithRetry(keyed),
      { net: 7n, added: 7n, subbed: 0n });
    assert.equal(slept.length, 2);
  });
  assert.equal((await counters.get(total('unknown'))).net, 7n);
  await withProxy([isUnknown], async (patient) => {
    await assert.rejects(patient.incrementWithRetry(total('unknown')),
      (error) => error.status === 504 && error.outcome === 'unknown');
  });
  await withProxy([isCut], async (patient) => {
    await assert.rejects(patient.incrementWithRetry(total('unknown')),
      isError(0));
  });
  assert.equal((await counters.get(total('unknown'))).net, 9n);
});

await test('one key, two requests', async () => {
  const keyed = total('twice', { idempotencyKey: 'twice-1', amount: 2 });
  assert.equal((await counters.increment(keyed)).net, 2n);
  assert.equal((await counters.increment(keyed)).net, 2n);
  await assert.rejects(counters.increment({ ...keyed, amount: 3 }), isError(409,
    'The Idempotency-Key was used with another request'));
});

await test('the queue of the server is full', async () => {
  await counters.increment(total('held'));
  await please('hold');
  let released;
  const told = new Set();
  const patient = client({
    sleep: async (ms) => {
      slept.push(ms);
      released ??= please('release');
      await released;
    },
  });
  const increment = patient.increment.bind(patient);
  patient.increment = async (write) => {
    try {
      return await increment(write);
    } catch (error) {
      told.add(error.status);
      throw error;
    }
  };
  const answers = await Promise.all(Array.from({ length: 40 },
    () => patient.incrementWithRetry(total('held'), 50)));
  assert.deepEqual([...told], [429]);
  assert.ok(slept.every((ms) => ms >= 1000), 'not at once');
  assert.equal((await counters.get(total('held'))).net, 41n);
  assert.equal(new Set(answers.map(({ net }) => net)).size, 40);
});

answers.return?.();
process.exit(0);
