// The messages of the service and of google.rpc, described by hand.
import { create, createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import {
	FileDescriptorProtoSchema, file_google_protobuf_any, file_google_protobuf_duration,
	file_google_protobuf_empty, file_google_protobuf_wrappers,
} from "@bufbuild/protobuf/wkt";

const known = [file_google_protobuf_any, file_google_protobuf_duration, file_google_protobuf_empty,
	file_google_protobuf_wrappers].map((f) => f.proto);

function describe(file) {
	return createFileRegistry(create(FileDescriptorProtoSchema, {
		...file, syntax: "proto3", dependency: known.map((f) => f.name),
	}), (name) => known.find((f) => f.name === name));
}

const text = (name, number) => ({ name, number, label: 1, type: 9 });

const rpc = describe({
	name: "status.proto", package: "google.rpc", messageType: [
		{ name: "Status", field: [{ name: "code", number: 1, label: 1, type: 5 }, text("message", 2),
			{ name: "details", number: 3, label: 3, type: 11, typeName: ".google.protobuf.Any" }] },
		{ name: "RetryInfo", field: [{ name: "retry_delay", number: 1, label: 1, type: 11,
			typeName: ".google.protobuf.Duration" }] },
		{ name: "ErrorInfo", field: [text("reason", 1), text("domain", 2)] },
	],
});

const method = (name, more) => ({ name, inputType: ".google.protobuf.Empty",
	outputType: ".google.protobuf.StringValue", ...more });

export const Orders = describe({
	name: "orders.proto", package: "example", service: [{ name: "Orders", method: [
		method("Get", { options: { idempotencyLevel: 1 } }), method("Watch", { serverStreaming: true }),
	] }],
}).getService("example.Orders");

export const RetryInfo = rpc.getMessage("google.rpc.RetryInfo");
export const ErrorInfo = rpc.getMessage("google.rpc.ErrorInfo");

// details returns those of the bytes of a google.rpc.Status in base64.
export function details(base64) {
	const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
	const found = fromBinary(rpc.getMessage("google.rpc.Status"), bytes).details;
	const find = (schema) => found.filter((d) => d.typeUrl.endsWith("/" + schema.typeName))
		.map((d) => fromBinary(schema, d.value))[0];
	return { retry: find(RetryInfo), info: find(ErrorInfo) };
}

// milliseconds returns the wait of a RetryInfo.
export function milliseconds(retry) {
	return Number(retry.retryDelay.seconds) * 1000 + retry.retryDelay.nanos / 1e6;
}
