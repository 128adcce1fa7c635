// Calls a service of another origin with each client that a page may have, until it is
// refused, waits as it is told, and calls once more.
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { GrpcWebClientBase, MethodDescriptor } from "grpc-web";
import { ErrorInfo, Orders, RetryInfo, details, milliseconds } from "./messages.mjs";

const api = new URLSearchParams(location.search).get("api");

function viaConnect(transport, stream) {
	const client = createClient(Orders, transport);
	return async () => {
		try {
			if (stream) for await (const _ of client.watch({}));
			else await client.get({});
			return { code: 0 };
		} catch (e) {
			const [retry] = e.findDetails(RetryInfo), [info] = e.findDetails(ErrorInfo);
			return { code: e.code, message: e.rawMessage, reason: info?.reason,
				wait: retry ? milliseconds(retry) : -1 };
		}
	};
}

function viaGrpcWeb(format, method) {
	const client = new GrpcWebClientBase({ format });
	const descriptor = new MethodDescriptor("/example.Orders/" + method,
		method === "Watch" ? "server_streaming" : "unary", Object, Object, () => new Uint8Array(), () => ({}));
	const url = api + "/example.Orders/" + method;
	return () => new Promise((resolve) => {
		let errors = 0, last = { code: 0 };
		const failed = (e) => {
			errors++;
			const { retry, info } = details(e.metadata["grpc-status-details-bin"]);
			last = { code: e.code, message: e.message, reason: info?.reason, wait: milliseconds(retry),
				pushback: e.metadata["grpc-retry-pushback-ms"] };
		};
		const done = () => setTimeout(() => resolve({ ...last, errors }), 100);
		if (method === "Watch") {
			const stream = client.serverStreaming(url, {}, {}, descriptor);
			stream.on("error", (e) => { failed(e); done(); });
			stream.on("end", done);
		} else {
			client.rpcCall(url, {}, {}, descriptor, (e) => { if (e) failed(e); done(); });
		}
	});
}

const connect = (options) => createConnectTransport({ baseUrl: api, ...options });
const grpcWeb = (options) => createGrpcWebTransport({ baseUrl: api, ...options });
const clients = {
	"connect": viaConnect(connect({ useBinaryFormat: true })),
	"connect-json": viaConnect(connect({ useBinaryFormat: false })),
	"connect-get": viaConnect(connect({ useHttpGet: true })),
	"connect-stream": viaConnect(connect({}), true),
	"connect-grpc-web": viaConnect(grpcWeb({})),
	"connect-grpc-web-stream": viaConnect(grpcWeb({}), true),
	"grpc-web": viaGrpcWeb("binary", "Get"),
	"grpc-web-text": viaGrpcWeb("text", "Get"),
	"grpc-web-text-stream": viaGrpcWeb("text", "Watch"),
};

const seen = {};
for (const [name, call] of Object.entries(clients)) {
	await fetch("/wait?ms=3600000"); // all accounts are full again
	const answers = seen[name] = [];
	try {
		answers.push(await call(), await call());
		await fetch("/wait?ms=" + answers[1].wait);
		answers.push(await call());
	} catch (e) {
		answers.push({ error: String(e) });
	}
	document.getElementById("seen").textContent = JSON.stringify(seen);
}
