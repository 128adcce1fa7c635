// Calls a method twice by grpc-js with a retry policy, whose own backoff is far longer than
// a test waits, and prints the codes:
//
//	node node.mjs ADDRESS METHOD
import { Client, credentials } from "@grpc/grpc-js";

const [address, method] = process.argv.slice(2);
const client = new Client(address, credentials.createInsecure(), {
	"grpc.service_config": JSON.stringify({ loadBalancingConfig: [], methodConfig: [{ name: [{}], retryPolicy: {
		maxAttempts: 4, initialBackoff: "60s", maxBackoff: "60s", backoffMultiplier: 1,
		retryableStatusCodes: ["RESOURCE_EXHAUSTED"],
	} }] }),
});
const bytes = (b) => Buffer.from(b);
const call = () => new Promise((resolve) =>
	client.makeUnaryRequest(method, bytes, bytes, Buffer.alloc(0), (e) => resolve(e ? e.code : 0)));
console.log(JSON.stringify([await call(), await call()]));
client.close();
