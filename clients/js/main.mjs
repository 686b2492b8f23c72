// Ask a model: `node main.mjs ADDRESS FOLDER`. Each line of the input is one turn, each line of the output one event, as JSON.
// It ends with its input, once every turn has its answer. One process at a time uses a folder, and tells earlier answers again.
import readline from 'node:readline';
import { Client } from './client.mjs';

const print = (event, fields) => console.log(JSON.stringify({ event, ...fields }));
const fail = ({ reason, code, message }) => { print('failed', { reason: reason ?? code, detail: message }); process.exit(1); };
const [address, folder] = process.argv.slice(2), open = new Set();
if (process.argv.length !== 4) fail({ reason: 'ARGUMENT_INVALID', message: 'usage: node main.mjs ADDRESS FOLDER' });
let client, ended;
try { client = new Client(address, folder); } catch ({ reason = 'FILE_UNUSABLE', message }) { fail({ reason, message }); }
const finish = () => ended && !open.size && client.close();
for (const name of ['draft', 'durable', 'answer', 'warning', 'retry']) client.on(name, ({ reason, message, ...fields }) => print(name, reason ? { reason, detail: message } : fields));
for (const name of ['refused', 'failed']) client.on(name, fail);
client.on('answer', ({ request }) => { open.delete(request); finish(); });
client.flush(); // send what an earlier process left, and follow the conversation
for await (const line of readline.createInterface({ input: process.stdin })) {
  if (!line.trim()) continue;
  const request = await client.ask(line).catch(fail);
  open.add(request) && print('asked', { request });
}
finish(ended = true);
