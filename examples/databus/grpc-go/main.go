// Writes orders to a sidecar by gRPC: go run . [HOST:PORT]
//
// Its package databusv1 is what protoc makes of databus.proto:
//
//	go install google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
//	protoc --go_out=. --go-grpc_out=. --go_opt=module=example/orders --go-grpc_opt=module=example/orders \
//	  --go_opt=Mdatabus.proto=example/orders/databusv1 --go-grpc_opt=Mdatabus.proto=example/orders/databusv1 databus.proto
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"example/orders/databusv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// write sends the messages in one call, again with the same key where it failed and may succeed later: the sidecar
// writes them once.
func write(client databusv1.DatabusClient, request *databusv1.WriteRequest) (*databusv1.WriteResponse, error) {
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	var last error
	for try := range 8 {
		if try > 0 {
			time.Sleep(100 * time.Millisecond << try)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 70*time.Second)
		ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", hex.EncodeToString(key))
		response, err := client.Write(ctx, request)
		cancel()
		switch status.Code(err) {
		case codes.OK:
			return response, nil
		case codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
			last = err
		default:
			return nil, err
		}
	}
	return nil, last
}

// stream sends messages one after the other, and reads their results meanwhile.
func stream(client databusv1.DatabusClient, count int) (int, error) {
	calls, err := client.WriteStream(context.Background())
	if err != nil {
		return 0, err
	}
	go func() {
		for number := range count {
			message := &databusv1.Message{Value: fmt.Appendf(nil, "order %d", number)}
			if calls.Send(&databusv1.WriteStreamRequest{Channel: "orders", Messages: []*databusv1.Message{message}}) != nil {
				return // Recv says why
			}
		}
		calls.CloseSend()
	}()
	written := 0
	for {
		response, err := calls.Recv()
		if err == io.EOF {
			return written, nil
		}
		if err != nil {
			return written, err
		}
		for _, one := range response.Results {
			if one.GetError() != nil {
				return written, fmt.Errorf("%s: %s", codes.Code(one.GetError().Code), one.GetError().Text)
			}
			written++
		}
	}
}

func run(address string) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := databusv1.NewDatabusClient(connection)
	response, err := write(client, &databusv1.WriteRequest{
		Channel: "orders",
		Messages: []*databusv1.Message{
			{Key: []byte("4711"), Value: []byte(`{"total": 5}`)},
			{Key: []byte("4712"), Value: []byte(`{"total": 7}`)},
		},
	})
	if err != nil {
		return err
	}
	for _, one := range response.Results { // the call succeeds also where some failed
		if one.GetError() != nil {
			return fmt.Errorf("%s: %s", codes.Code(one.GetError().Code), one.GetError().Text)
		}
		fmt.Printf("written to partition %d at offset %d\n", one.GetWritten().Partition, one.GetWritten().Offset)
	}
	written, err := stream(client, 1_000)
	fmt.Printf("%d written\n", written)
	return err
}

func main() {
	address := "127.0.0.1:8602"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if err := run(address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
