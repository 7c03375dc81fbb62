package emulator

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/awsclient"
	"agentworker/internal/emulator/control"
	"agentworker/internal/emulator/dynamodb"
	"agentworker/internal/emulator/endpoint"
	"agentworker/internal/emulator/sns"
	"agentworker/internal/emulator/sqs"
)

// startServices starts the table, the queues and the topic, behind one endpoint.
func (c *Chain) startServices(ctx context.Context, l net.Listener) error {
	var front endpoint.Config
	front.Logger = c.log
	tableURL := c.config.DynamoDBEndpoint
	if tableURL == "" {
		binary, err := dynamodb.Install(ctx, c.config.ToolsDir)
		if err != nil {
			return err
		}
		opts := dynamodb.Options{Binary: binary, Logger: c.log}
		if c.config.DataDir != "" {
			opts.DBPath = filepath.Join(c.config.DataDir, "dynamodb.sqlite")
		}
		if c.table, err = dynamodb.Start(ctx, opts); err != nil {
			return err
		}
		tableURL = c.table.Endpoint()
		c.watch("DynamoDB", c.table)
	}
	var err error
	if front.DynamoDB, err = url.Parse(tableURL); err != nil {
		return fmt.Errorf("AWS_ENDPOINT_URL_DYNAMODB is not a URL: %w", err)
	}
	if c.topic, err = sns.New(sns.Config{Region: region, AccountID: account, Topics: []string{c.config.Stack.TopicName}, OnPublish: c.config.Notify}); err != nil {
		return err
	}
	front.CloudFormation = c.stacks
	front.SNS, front.Notifications = c.topic, c.topic.NotificationsHandler()
	if c.config.SQSEndpoint == "" {
		opts := sqs.Options{Clock: c.config.Clock, BaseURL: c.awsURL, Region: region, AccountID: account, Logger: c.log}
		if c.config.DataDir != "" {
			opts.Dir = filepath.Join(c.config.DataDir, "sqs")
		}
		if c.sqsServer, err = sqs.Open(opts); err != nil {
			return fmt.Errorf("DATA_DIR cannot be used: %w; set DATA_DIR to a folder that can be written and that no other make run uses", err)
		}
		front.SQS = c.sqsServer
	}
	front.Lambda = http.HandlerFunc(c.serveLambda)
	front.CloudWatch = c.whenUp((*control.Plane).CloudWatch)
	front.EventBridge = c.whenUp((*control.Plane).EventBridge)

	e := endpoint.New(front)
	c.later("AWS APIs", func(context.Context) error { return e.Close() })
	c.serve("AWS APIs", l, c.config.Chaos.Wire(e))
	if c.sqsServer != nil { // before the endpoint, which waits for long polls to be answered
		c.later("SQS", func(context.Context) error { return c.sqsServer.Close() })
	}
	return nil
}

// watch reports a table that ends by itself.
func (c *Chain) watch(what string, table *dynamodb.Server) {
	stopping := make(chan struct{})
	go func() {
		select {
		case <-table.Done():
			select {
			case <-stopping:
			default:
				c.fail(what, table.Err())
			}
		case <-stopping:
		}
	}()
	c.later(what, func(context.Context) error {
		close(stopping)
		return table.Close()
	})
}

func (c *Chain) createResources(ctx context.Context) error {
	calls := awsclient.HTTPClient(0) // the mappings poll for 20 s
	c.later("clients", func(context.Context) error {
		calls.CloseIdleConnections()
		return nil
	})
	client := awsdynamodb.New(awsdynamodb.Options{
		Region: region, Credentials: localCredentials(), HTTPClient: calls, BaseEndpoint: aws.String(cmp.Or(c.config.DynamoDBEndpoint, c.awsURL)),
	})
	c.sqsClient = awssqs.New(awssqs.Options{
		Region: region, Credentials: localCredentials(), HTTPClient: calls, BaseEndpoint: aws.String(cmp.Or(c.config.SQSEndpoint, c.awsURL)),
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return createTable(ctx, client, c.config.Stack.TableName) })
	g.Go(func() (err error) {
		c.tasks, err = createQueues(ctx, c.sqsClient, c.config.Stack.Tasks)
		return err
	})
	g.Go(func() (err error) {
		c.ordered, err = createQueues(ctx, c.sqsClient, c.config.Stack.Ordered)
		return err
	})
	return g.Wait()
}

// Credentials that mean nothing: the local services check no signature, but the SDK wants to make one.
func localCredentials() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider("local", "local", "")
}
